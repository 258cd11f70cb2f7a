"""A self-contained serving runtime for one speech model: real-time transcription over a WebSocket, and of files."""
