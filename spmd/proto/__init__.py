"""HLO as protocol buffers: HloModuleProto and what wraps it, read and written without the protobuf package.

schema/ declares the messages by their public field numbers, wire.py and message.py read and write them; reader.py and
writer.py are the drivers, attrs_proto/ has one file per op family, and one file stands for each kind of value.
"""
