"""The folder mailbox: requests to a person or any other tool, and their results."""

from __future__ import annotations

from vibeserve.agents.mailbox.backend import ExternalBackend
from vibeserve.agents.mailbox.documents import MailboxRequest, MailboxResult
from vibeserve.agents.mailbox.finding import Letter, Mailbox, find_letters, mailboxes_in, project_mailboxes
from vibeserve.agents.mailbox.folder import RequestFolder, Submitted

__all__ = [
    "ExternalBackend",
    "Letter",
    "Mailbox",
    "MailboxRequest",
    "MailboxResult",
    "RequestFolder",
    "Submitted",
    "find_letters",
    "mailboxes_in",
    "project_mailboxes",
]
