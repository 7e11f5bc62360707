"""The option --compressor of the conformance suite, also where the installed package does not announce it."""

pytest_plugins = ["compressors.conformance.options"]
