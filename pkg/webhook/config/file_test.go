package config

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/volume"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// mountedFile is a file of a ConfigMap.
type mountedFile struct {
	*volume.Volume
	t *testing.T
}

func mount(t *testing.T, text string) mountedFile {
	t.Helper()
	file := mountedFile{volume.New(t), t}
	file.write(text)
	return file
}

func (m mountedFile) path() string { return m.Path("config.yaml") }

func (m mountedFile) write(text string) {
	m.t.Helper()
	m.Write(m.t, map[string][]byte{"config.yaml": []byte(text)})
}

// followedFile is a file and the reports of Follow about it.
type followedFile struct {
	mountedFile
	updates  chan *rules.Settings
	failures chan error
	ended    chan error
	stop     context.CancelFunc
	log      *logs.Log
}

func followFile(t *testing.T, text string) *followedFile {
	t.Helper()
	f := &followedFile{
		mountedFile: mount(t, text), log: logs.New(t, "the file watcher"),
		updates: make(chan *rules.Settings, 100), failures: make(chan error, 100), ended: make(chan error, 1),
	}
	file, err := Read(f.path())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = cancel
	t.Cleanup(cancel)
	go func() {
		f.ended <- file.Follow(ctx, f.log.Logger(), func(s *rules.Settings) { f.updates <- s }, func(err error) { f.failures <- err })
	}()
	return f
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	return wait.Receive(t, "a report", from)
}

func TestReadParsesSettings(t *testing.T) {
	file := mount(t, header+"strict: true\n")
	read, err := Read(file.path())
	if err != nil || !read.Settings.Strict || read.Path != file.path() {
		t.Errorf("Read() = %v, %v", read, err)
	}
}

func TestReadErrorContainsPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if _, err := Read(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("without a file: %v", err)
	}
	if err := os.WriteFile(path, []byte(header+"strict: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path+":3: strict: must be bool") {
		t.Errorf("with an invalid file: %v", err)
	}
}

func TestFollowReportsUpdatesAndFailures(t *testing.T) {
	f := followFile(t, header)
	f.write(header + "strict: true\n")
	if got := receive(t, f.updates); !got.Strict {
		t.Errorf("unexpected update: %v", got)
	}
	f.write(header + "strict: 1\n")
	if err := receive(t, f.failures); !strings.Contains(err.Error(), f.path()+":3: strict: must be bool") {
		t.Errorf("unexpected failure: %v", err)
	}
	f.write(header + "strict: two\n")
	if err := receive(t, f.failures); !strings.Contains(err.Error(), "not string") {
		t.Errorf("unexpected second failure: %v", err)
	}
	f.write(header + "proxyName: vicinity\n")
	if got := receive(t, f.updates); got.ProxyName != "vicinity" {
		t.Errorf("unexpected update: %v", got)
	}
	if got := f.log.Count("cannot be used; keeping the last valid one"); got != 2 {
		t.Errorf("the failures were logged %d times, want once each", got)
	}
	if len(f.updates) > 0 || len(f.failures) > 0 {
		t.Errorf("%d unexpected updates and %d unexpected failures", len(f.updates), len(f.failures))
	}
}

func TestFollowReportsRevertedMistake(t *testing.T) {
	f := followFile(t, header+"strict: true\n")
	f.write("nothing")
	if err := receive(t, f.failures); err == nil {
		t.Error("no failure was reported")
	}
	f.write(header + "strict: true\n")
	if got := receive(t, f.updates); !got.Strict {
		t.Errorf("unexpected update: %v", got)
	}
}

func TestFollowReportsUnreadableFile(t *testing.T) {
	f := followFile(t, header+"strict: true\n")
	version, err := os.Readlink(filepath.Join(f.Dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(f.Dir, version, "config.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil { // root can read anything except a folder
		t.Fatal(err)
	}
	if err := receive(t, f.failures); !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("unexpected failure: %v", err)
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, f.updates); !got.Strict {
		t.Errorf("unexpected update: %v", got)
	}
}

func TestFollowIgnoresUnchangedContent(t *testing.T) {
	f := followFile(t, header)
	f.write(header)
	f.write(header + "strict: true\n")
	receive(t, f.updates)
	if len(f.updates) > 0 || len(f.failures) > 0 {
		t.Errorf("%d unexpected updates and %d unexpected failures", len(f.updates), len(f.failures))
	}
}

func TestFollowReportsChangeSinceRead(t *testing.T) {
	file := mount(t, header)
	read, err := Read(file.path())
	if err != nil {
		t.Fatal(err)
	}
	file.write(header + "strict: true\n")
	ctx, cancel := context.WithCancel(t.Context())
	strict := false
	err = read.Follow(ctx, slog.New(slog.DiscardHandler), func(s *rules.Settings) { strict = s.Strict; cancel() }, func(error) {})
	if err != nil || !strict {
		t.Errorf("strict %v, error %v", strict, err)
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	f := followFile(t, header)
	f.stop()
	if err := receive(t, f.ended); err != nil {
		t.Errorf("Follow() = %v", err)
	}
}
