from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TraceEvent(_message.Message):
    __slots__ = ("type", "peerID", "timestamp", "publishMessage", "rejectMessage", "duplicateMessage", "deliverMessage", "onNewOutboundStream", "onClosedOutboundStream", "recvRPC", "sendRPC", "dropRPC", "join", "leave", "graft", "prune")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PUBLISH_MESSAGE: _ClassVar[TraceEvent.Type]
        REJECT_MESSAGE: _ClassVar[TraceEvent.Type]
        DUPLICATE_MESSAGE: _ClassVar[TraceEvent.Type]
        DELIVER_MESSAGE: _ClassVar[TraceEvent.Type]
        ON_NEW_OUTBOUND_STREAM: _ClassVar[TraceEvent.Type]
        ON_CLOSED_OUTBOUND_STREAM: _ClassVar[TraceEvent.Type]
        RECV_RPC: _ClassVar[TraceEvent.Type]
        SEND_RPC: _ClassVar[TraceEvent.Type]
        DROP_RPC: _ClassVar[TraceEvent.Type]
        JOIN: _ClassVar[TraceEvent.Type]
        LEAVE: _ClassVar[TraceEvent.Type]
        GRAFT: _ClassVar[TraceEvent.Type]
        PRUNE: _ClassVar[TraceEvent.Type]
    PUBLISH_MESSAGE: TraceEvent.Type
    REJECT_MESSAGE: TraceEvent.Type
    DUPLICATE_MESSAGE: TraceEvent.Type
    DELIVER_MESSAGE: TraceEvent.Type
    ON_NEW_OUTBOUND_STREAM: TraceEvent.Type
    ON_CLOSED_OUTBOUND_STREAM: TraceEvent.Type
    RECV_RPC: TraceEvent.Type
    SEND_RPC: TraceEvent.Type
    DROP_RPC: TraceEvent.Type
    JOIN: TraceEvent.Type
    LEAVE: TraceEvent.Type
    GRAFT: TraceEvent.Type
    PRUNE: TraceEvent.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PEERID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PUBLISHMESSAGE_FIELD_NUMBER: _ClassVar[int]
    REJECTMESSAGE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATEMESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVERMESSAGE_FIELD_NUMBER: _ClassVar[int]
    ONNEWOUTBOUNDSTREAM_FIELD_NUMBER: _ClassVar[int]
    ONCLOSEDOUTBOUNDSTREAM_FIELD_NUMBER: _ClassVar[int]
    RECVRPC_FIELD_NUMBER: _ClassVar[int]
    SENDRPC_FIELD_NUMBER: _ClassVar[int]
    DROPRPC_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    GRAFT_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    type: TraceEvent.Type
    peerID: bytes
    timestamp: int
    publishMessage: PublishMessage
    rejectMessage: RejectMessage
    duplicateMessage: DuplicateMessage
    deliverMessage: DeliverMessage
    onNewOutboundStream: OnNewOutboundStream
    onClosedOutboundStream: OnClosedOutboundStream
    recvRPC: RecvRPC
    sendRPC: SendRPC
    dropRPC: DropRPC
    join: Join
    leave: Leave
    graft: Graft
    prune: Prune
    def __init__(self, type: _Optional[_Union[TraceEvent.Type, str]] = ..., peerID: _Optional[bytes] = ..., timestamp: _Optional[int] = ..., publishMessage: _Optional[_Union[PublishMessage, _Mapping]] = ..., rejectMessage: _Optional[_Union[RejectMessage, _Mapping]] = ..., duplicateMessage: _Optional[_Union[DuplicateMessage, _Mapping]] = ..., deliverMessage: _Optional[_Union[DeliverMessage, _Mapping]] = ..., onNewOutboundStream: _Optional[_Union[OnNewOutboundStream, _Mapping]] = ..., onClosedOutboundStream: _Optional[_Union[OnClosedOutboundStream, _Mapping]] = ..., recvRPC: _Optional[_Union[RecvRPC, _Mapping]] = ..., sendRPC: _Optional[_Union[SendRPC, _Mapping]] = ..., dropRPC: _Optional[_Union[DropRPC, _Mapping]] = ..., join: _Optional[_Union[Join, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., graft: _Optional[_Union[Graft, _Mapping]] = ..., prune: _Optional[_Union[Prune, _Mapping]] = ...) -> None: ...

class TraceEventBatch(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: _containers.RepeatedCompositeFieldContainer[TraceEvent]
    def __init__(self, batch: _Optional[_Iterable[_Union[TraceEvent, _Mapping]]] = ...) -> None: ...

class PublishMessage(_message.Message):
    __slots__ = ("messageID", "topic")
    MESSAGEID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    messageID: bytes
    topic: str
    def __init__(self, messageID: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...

class RejectMessage(_message.Message):
    __slots__ = ("messageID", "receivedFrom", "reason", "topic")
    MESSAGEID_FIELD_NUMBER: _ClassVar[int]
    RECEIVEDFROM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    messageID: bytes
    receivedFrom: bytes
    reason: str
    topic: str
    def __init__(self, messageID: _Optional[bytes] = ..., receivedFrom: _Optional[bytes] = ..., reason: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class DuplicateMessage(_message.Message):
    __slots__ = ("messageID", "receivedFrom", "topic")
    MESSAGEID_FIELD_NUMBER: _ClassVar[int]
    RECEIVEDFROM_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    messageID: bytes
    receivedFrom: bytes
    topic: str
    def __init__(self, messageID: _Optional[bytes] = ..., receivedFrom: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...

class DeliverMessage(_message.Message):
    __slots__ = ("messageID", "topic", "receivedFrom")
    MESSAGEID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECEIVEDFROM_FIELD_NUMBER: _ClassVar[int]
    messageID: bytes
    topic: str
    receivedFrom: bytes
    def __init__(self, messageID: _Optional[bytes] = ..., topic: _Optional[str] = ..., receivedFrom: _Optional[bytes] = ...) -> None: ...

class OnNewOutboundStream(_message.Message):
    __slots__ = ("peerID", "proto")
    PEERID_FIELD_NUMBER: _ClassVar[int]
    PROTO_FIELD_NUMBER: _ClassVar[int]
    peerID: bytes
    proto: str
    def __init__(self, peerID: _Optional[bytes] = ..., proto: _Optional[str] = ...) -> None: ...

class OnClosedOutboundStream(_message.Message):
    __slots__ = ("peerID",)
    PEERID_FIELD_NUMBER: _ClassVar[int]
    peerID: bytes
    def __init__(self, peerID: _Optional[bytes] = ...) -> None: ...

class RecvRPC(_message.Message):
    __slots__ = ("receivedFrom", "meta")
    RECEIVEDFROM_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    receivedFrom: bytes
    meta: RPCMeta
    def __init__(self, receivedFrom: _Optional[bytes] = ..., meta: _Optional[_Union[RPCMeta, _Mapping]] = ...) -> None: ...

class SendRPC(_message.Message):
    __slots__ = ("sendTo", "meta")
    SENDTO_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    sendTo: bytes
    meta: RPCMeta
    def __init__(self, sendTo: _Optional[bytes] = ..., meta: _Optional[_Union[RPCMeta, _Mapping]] = ...) -> None: ...

class DropRPC(_message.Message):
    __slots__ = ("sendTo", "meta")
    SENDTO_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    sendTo: bytes
    meta: RPCMeta
    def __init__(self, sendTo: _Optional[bytes] = ..., meta: _Optional[_Union[RPCMeta, _Mapping]] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class Graft(_message.Message):
    __slots__ = ("peerID", "topic")
    PEERID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    peerID: bytes
    topic: str
    def __init__(self, peerID: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...

class Prune(_message.Message):
    __slots__ = ("peerID", "topic")
    PEERID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    peerID: bytes
    topic: str
    def __init__(self, peerID: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...

class RPCMeta(_message.Message):
    __slots__ = ("messages", "subscription", "control")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[MessageMeta]
    subscription: _containers.RepeatedCompositeFieldContainer[Part]
    control: ControlMeta
    def __init__(self, messages: _Optional[_Iterable[_Union[MessageMeta, _Mapping]]] = ..., subscription: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., control: _Optional[_Union[ControlMeta, _Mapping]] = ...) -> None: ...

class MessageMeta(_message.Message):
    __slots__ = ("messageID", "topic")
    MESSAGEID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    messageID: bytes
    topic: str
    def __init__(self, messageID: _Optional[bytes] = ..., topic: _Optional[str] = ...) -> None: ...

class ControlMeta(_message.Message):
    __slots__ = ("ihave", "iwant", "graft", "prune", "idontwant")
    IHAVE_FIELD_NUMBER: _ClassVar[int]
    IWANT_FIELD_NUMBER: _ClassVar[int]
    GRAFT_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    IDONTWANT_FIELD_NUMBER: _ClassVar[int]
    ihave: _containers.RepeatedCompositeFieldContainer[Part]
    iwant: _containers.RepeatedCompositeFieldContainer[Part]
    graft: _containers.RepeatedCompositeFieldContainer[Part]
    prune: _containers.RepeatedCompositeFieldContainer[Part]
    idontwant: _containers.RepeatedCompositeFieldContainer[Part]
    def __init__(self, ihave: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., iwant: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., graft: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., prune: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., idontwant: _Optional[_Iterable[_Union[Part, _Mapping]]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
