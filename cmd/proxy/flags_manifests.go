package main

import (
	"fmt"
	"io"
	"os"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
)

// manifestsFlag is --manifests: a folder, a file, or "-" for standard input.
type manifestsFlag struct {
	manifests string
	stdin     io.Reader

	stream *manifests.Stream // after reading, because a stream can be read only once
}

// stdinManifests is the value of --manifests for standard input, and stdinName its name in messages.
const stdinManifests, stdinName = "-", "<stdin>"

// orStdin is part of the help text of --manifests for commands that read once.
const orStdin = "- is standard input. "

// origin returns the source of the objects, for messages.
func (f *manifestsFlag) origin() string {
	switch f.manifests {
	case "":
		return "the cluster"
	case stdinManifests:
		return "standard input"
	}
	return f.manifests
}

// readStream returns the manifests if they can be read only once: from standard input, or from a pipe such as a shell's
// <(kubectl get ...). It returns nil if they are files.
func (f *manifestsFlag) readStream() (*manifests.Stream, error) {
	if f.stream != nil {
		return f.stream, nil
	}
	reader, name := f.stdin, stdinName
	if f.manifests != stdinManifests {
		info, err := os.Stat(f.manifests)
		if err != nil || info.IsDir() || info.Mode().IsRegular() {
			return nil, nil // a later read of the files reports the error
		}
		pipe, err := os.Open(f.manifests)
		if err != nil {
			return nil, fmt.Errorf("load manifests: %w", err)
		}
		defer func() { _ = pipe.Close() }() // the pipe was only read, so closing cannot lose data
		reader, name = pipe, f.manifests
	}
	text, err := manifest.Read(name, reader)
	if err != nil {
		return nil, fmt.Errorf("load manifests: %w", err)
	}
	f.stream = &manifests.Stream{Name: name, Text: text}
	return f.stream, nil
}

// loadInto loads the manifests as a proxy does.
func (f *manifestsFlag) loadInto(folder *manifests.Folder) (convert.Update, error) {
	stream, err := f.readStream()
	if err != nil {
		return convert.Update{}, err
	}
	if stream != nil {
		return folder.LoadStream(stream), nil
	}
	update, err := folder.Load(f.manifests)
	if err != nil {
		return convert.Update{}, fmt.Errorf("load manifests: %w", err)
	}
	return update, nil
}

// objects reads the objects as written.
func (f *manifestsFlag) objects() (convert.Objects, []model.Finding, error) {
	stream, err := f.readStream()
	if err != nil {
		return convert.Objects{}, nil, err
	}
	if stream != nil {
		objects, problems := manifests.ObjectsOf(stream)
		return objects, problems, nil
	}
	objects, problems, err := manifests.Objects(f.manifests)
	if err != nil {
		return convert.Objects{}, nil, fmt.Errorf("load manifests: %w", err)
	}
	return objects, problems, nil
}
