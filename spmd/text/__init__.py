"""HLO text: reading, writing, and the small languages inside it.

Where to look, in the order of the data:

    parser              the driver: header, file tables, computations
    line_text           an instruction on a line of its own, by one pattern and tables of known texts
    instruction_text    an instruction by the full grammar (whatever line_text cannot read)
    attrs_text/         attributes, one file per op family, reader and writer side by side
    sharding/           shardings, meshes, replica groups and Shardy's attributes
    *_text              shapes, literals, windows, aliases, annotations
    printer             modules back to text, byte for byte as JAX and XLA write them
    stage               what a text leaves unsaid
    sources/            where modules come from: files, dump directories, functions of JAX, StableHLO

Everything is read by ``lexer.Scanner``, which holds absolute positions: any reader can say file, line and column.
Text is not trusted: nesting is bounded, time is linear, memory is proportional to the text, bad text gives an
HloParseError.

docs/internals/text_reader.md says what is read otherwise than by XLA's parser.
"""
