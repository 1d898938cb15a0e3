"""The bodies of HTTP requests and responses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from graphforget.service.identities import FORMATS, HASHED, TYPES
from graphforget.service.tokens import SCOPES

MOST_NAMES = 100  # identities, relations, columns or callbacks of one request
UUID4 = r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
ANY_UUID = UUID4.replace("-4", "-[0-9a-f]", 1)


def _printable(text: str) -> str:
    """Control characters and halves of surrogate pairs cannot be stored."""
    if not text.isprintable() or not text.strip():
        raise ValueError("is blank or has characters that cannot be printed")
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(_printable)]
Names = Annotated[list[Text], Field(max_length=MOST_NAMES)]
RequestId = Annotated[str, StringConstraints(pattern=UUID4)]
IdentityType = Literal[TYPES]  # type: ignore[valid-type]
IdentityFormat = Literal[FORMATS]  # type: ignore[valid-type]
Scope = Literal[SCOPES]  # type: ignore[valid-type]


class Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class OuterBody(Body):
    """A body whose narrower parts belong into the extension: elsewhere they would be ignored, and more be erased."""

    @model_validator(mode="before")
    @classmethod
    def _nothing_of_the_extension(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.keys().isdisjoint(Extension.model_fields):
            names = ", ".join(Extension.model_fields)
            raise ValueError(f"has a field that belongs into extensions.graphforget: one of {names}")
        return given


class Identity(Body):
    """Who the request is about."""

    identity_type: IdentityType
    identity_value: Text
    identity_format: IdentityFormat = "raw"


class Extension(BaseModel):
    """What only graphforget understands. Without relations, attributes or columns, the whole person is erased."""

    model_config = ConfigDict(extra="forbid")

    model: Text | Names | None = Field(default=None, description="The models to erase from; by default all.")
    edges: Names | None = Field(default=None, description="Erase the relations to these subjects.")
    attributes: bool = Field(default=False, description="Erase all attributes.")
    columns: Names | None = Field(default=None, description="Erase these attributes.")
    dry_run: bool = Field(default=False, description="Plan and change nothing.")


class Extensions(OuterBody):
    graphforget: Extension = Extension()


class NewRequest(OuterBody):
    """A request of OpenDSR 2.0."""

    regulation: Literal["gdpr", "ccpa"]
    subject_request_id: RequestId
    subject_request_type: Literal["erasure"]
    submitted_time: AwareDatetime
    subject_identities: Annotated[list[Identity], Field(min_length=1, max_length=MOST_NAMES)]
    api_version: Text | None = None
    status_callback_urls: Names = []
    extensions: Extensions = Extensions()


class NewRequestV1(NewRequest):
    """A request of OpenGDPR 1.0, which needs no regulation."""

    regulation: Literal["gdpr", "ccpa"] = "gdpr"


class Received(BaseModel):
    controller_id: str
    expected_completion_time: datetime
    received_time: datetime
    encoded_request: str
    subject_request_id: str


class Status(BaseModel):
    controller_id: str
    expected_completion_time: datetime
    subject_request_id: str
    request_status: Literal["pending", "in_progress", "completed", "cancelled"]
    api_version: str
    results_url: str | None = None
    extensions: dict[str, Any]


class Cancelled(BaseModel):
    controller_id: str
    received_time: datetime
    subject_request_id: str
    api_version: str


class SupportedIdentity(BaseModel):
    identity_type: str
    identity_format: str


class Discovery(BaseModel):
    api_version: str
    supported_identities: list[SupportedIdentity]
    supported_subject_request_types: list[str]
    processor_certificate: str


class Decision(Body):
    decision: Literal["approve", "refuse"]
    reason: Text | None = Field(default=None, description="Needed for a refusal. It must name nobody.")


class FidesErasure(OuterBody):
    """What the connector in Fides sends."""

    request: Text = Field(description="The privacy_request_id of Fides.")
    identity_type: IdentityType = TYPES[0]
    identity_value: Text


class Problem(BaseModel):
    domain: str
    reason: str
    message: str


class ErrorContent(BaseModel):
    code: int
    message: str
    errors: list[Problem]


class ErrorBody(BaseModel):
    """An error, without anything that the caller sent."""

    error: ErrorContent


SUPPORTED_FORMATS = ("raw", *HASHED)
