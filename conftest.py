"""The option --compressor of the conformance suite."""

pytest_plugins = ["compressors.conformance.options"]
