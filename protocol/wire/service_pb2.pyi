from confide.protocol.wire import wire_pb2 as _wire_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Asked(_message.Message):
    __slots__ = ("code", "query")
    CODE_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    code: _wire_pb2.Code
    query: bytes
    def __init__(self, code: _Optional[_Union[_wire_pb2.Code, str]] = ..., query: _Optional[bytes] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("state", "rounds", "taking", "reports", "owners", "failed")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    TAKING_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    state: str
    rounds: int
    taking: bool
    reports: int
    owners: int
    failed: bool
    def __init__(self, state: _Optional[str] = ..., rounds: _Optional[int] = ..., taking: _Optional[bool] = ..., reports: _Optional[int] = ..., owners: _Optional[int] = ..., failed: _Optional[bool] = ...) -> None: ...

class ModelPiece(_message.Message):
    __slots__ = ("code", "data")
    CODE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    code: _wire_pb2.Code
    data: bytes
    def __init__(self, code: _Optional[_Union[_wire_pb2.Code, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class CardJson(_message.Message):
    __slots__ = ("code", "card")
    CODE_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    code: _wire_pb2.Code
    card: str
    def __init__(self, code: _Optional[_Union[_wire_pb2.Code, str]] = ..., card: _Optional[str] = ...) -> None: ...
