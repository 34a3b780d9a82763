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
	// Path is the path of the file.
	Path string
	// Settings are the parsed settings. They must not be changed.
	Settings *rules.Settings

	content []byte
}

// Read reads a file. An error contains the file, line and field of every problem.
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

// Follow reloads the file whenever it changes, until ctx ends. It passes new settings to onUpdate. It passes the errors
// of an invalid version to onError, once for each version, and also errors of reading the file. Either may be called
// although nothing differs, for example when a mistake is undone.
//
// A missing file is probably being replaced: nothing happens until it exists again.
func (f *File) Follow(ctx context.Context, log *slog.Logger, onUpdate func(*rules.Settings), onError func(error)) error {
	text, settings, parseErr := f.content, f.Settings, error(nil)
	report := func(readErr error) {
		switch {
		case readErr != nil:
			onError(readErr)
		case parseErr != nil:
			onError(parseErr)
		default:
			onUpdate(settings)
		}
	}
	for {
		latest := text
		watched := filewatch.File{Path: f.Path, Content: text, Failed: report, Check: func() (err error) {
			latest, err = filewatch.ReadFile(f.Path)
			return err
		}}
		if err := watched.Watch(ctx, log); !errors.Is(err, filewatch.ErrUpdated) {
			return err
		}
		text = latest
		if settings, parseErr = Parse(f.Path, text); parseErr != nil {
			log.Error("the updated configuration cannot be used; keeping the last valid one", "file", f.Path, "error", parseErr)
		} else {
			log.Info("the configuration was updated", "file", f.Path)
		}
		report(nil)
	}
}
