from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NoiseExtensions(_message.Message):
    __slots__ = ("webtransport_certhashes", "stream_muxers")
    WEBTRANSPORT_CERTHASHES_FIELD_NUMBER: _ClassVar[int]
    STREAM_MUXERS_FIELD_NUMBER: _ClassVar[int]
    webtransport_certhashes: _containers.RepeatedScalarFieldContainer[bytes]
    stream_muxers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, webtransport_certhashes: _Optional[_Iterable[bytes]] = ..., stream_muxers: _Optional[_Iterable[str]] = ...) -> None: ...

class NoiseHandshakePayload(_message.Message):
    __slots__ = ("identity_key", "identity_sig", "extensions")
    IDENTITY_KEY_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_SIG_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    identity_key: bytes
    identity_sig: bytes
    extensions: NoiseExtensions
    def __init__(self, identity_key: _Optional[bytes] = ..., identity_sig: _Optional[bytes] = ..., extensions: _Optional[_Union[NoiseExtensions, _Mapping]] = ...) -> None: ...
