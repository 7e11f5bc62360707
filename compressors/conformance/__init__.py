"""The conformance suite: the tests that every compressor passes, ours and those of plug-ins.

    pytest -p compressors.conformance.options --pyargs compressors.conformance --compressor mine:Chunk,chunk=7

Without --compressor it tests all methods of the registry, ours with the variants in cases.py. It needs pytest and
hypothesis.
"""
