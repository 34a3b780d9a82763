package cli

import (
	"io"
	"log/slog"
)

// NewLogger returns a logger that writes in a format, text or json, and drops records below a level.
func NewLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
