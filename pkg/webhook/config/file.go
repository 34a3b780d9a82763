package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// File is a configuration file that has been read.
type File struct {
	// Path is where it is.
	Path string
	// Settings are what it says. They are not changed.
	Settings *rules.Settings

	content []byte
}

// Read reads a file. An error names the file, and line and field of everything that is wrong.
func Read(path string) (*File, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	settings, err := Parse(path, content)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return &File{Path: path, Settings: settings, content: content}, nil
}

// Follow reads the file again whenever it changes, until the context ends. It passes new settings to updated. It passes
// the errors of an unusable text to failed, once for each text, and also the errors of reading the file. Either may be
// called although nothing differs, for example when a mistake is undone.
//
// A file that is away is probably being replaced: nothing happens until it is back.
func (f *File) Follow(ctx context.Context, log *slog.Logger, updated func(*rules.Settings), failed func(error)) error {
	text, settings, wrong := f.content, f.Settings, error(nil)
	report := func(unreadable error) {
		switch {
		case unreadable != nil:
			failed(unreadable)
		case wrong != nil:
			failed(wrong)
		default:
			updated(settings)
		}
	}
	for {
		now := text
		watched := filewatch.File{Path: f.Path, Content: text, Failed: report, Check: func() (err error) {
			now, err = filewatch.ReadFile(f.Path)
			return err
		}}
		if err := watched.Watch(ctx, log); !errors.Is(err, filewatch.ErrUpdated) {
			return err
		}
		text = now
		if settings, wrong = Parse(f.Path, text); wrong != nil {
			log.Error("the updated configuration cannot be used; keeping the last good one", "file", f.Path, "error", wrong)
		} else {
			log.Info("the configuration was updated", "file", f.Path)
		}
		report(nil)
	}
}
