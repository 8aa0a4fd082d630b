from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Identify(_message.Message):
    __slots__ = ("publicKey", "listenAddrs", "protocols", "observedAddr", "protocolVersion", "agentVersion", "signedPeerRecord")
    PUBLICKEY_FIELD_NUMBER: _ClassVar[int]
    LISTENADDRS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    OBSERVEDADDR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLVERSION_FIELD_NUMBER: _ClassVar[int]
    AGENTVERSION_FIELD_NUMBER: _ClassVar[int]
    SIGNEDPEERRECORD_FIELD_NUMBER: _ClassVar[int]
    publicKey: bytes
    listenAddrs: _containers.RepeatedScalarFieldContainer[bytes]
    protocols: _containers.RepeatedScalarFieldContainer[str]
    observedAddr: bytes
    protocolVersion: str
    agentVersion: str
    signedPeerRecord: bytes
    def __init__(self, publicKey: _Optional[bytes] = ..., listenAddrs: _Optional[_Iterable[bytes]] = ..., protocols: _Optional[_Iterable[str]] = ..., observedAddr: _Optional[bytes] = ..., protocolVersion: _Optional[str] = ..., agentVersion: _Optional[str] = ..., signedPeerRecord: _Optional[bytes] = ...) -> None: ...
