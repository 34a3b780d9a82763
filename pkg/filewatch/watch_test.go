package filewatch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/volume"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// mountedFile is a file of a mounted ConfigMap.
type mountedFile struct {
	*volume.Volume
	t *testing.T
}

// mount returns a file with the text "one".
func mount(t *testing.T) mountedFile {
	t.Helper()
	file := mountedFile{volume.New(t), t}
	file.write("one")
	return file
}

func (m mountedFile) write(text string) {
	m.t.Helper()
	m.Write(m.t, map[string][]byte{"file.conf": []byte(text)})
}

func (m mountedFile) path() string { return m.Path("file.conf") }

// readFile reads a file. A text that contains "wrong" is invalid.
func readFile(t *testing.T, path string) File {
	t.Helper()
	file, err := Read(path, func() error {
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "wrong") {
			err = errors.New("invalid text: " + string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// startWatch watches a file until the test stops it. It returns the log, and the result of Watch.
func startWatch(t *testing.T, path string) (log *logs.Log, ended <-chan error, stop func()) {
	t.Helper()
	file := readFile(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	log, result := logs.New(t, "the watch"), make(chan error, 1)
	go func() { result <- file.Watch(ctx, log.Logger()) }()
	return log, result, cancel
}

func receiveResult(t *testing.T, ended <-chan error) error {
	t.Helper()
	return wait.Receive(t, "the watch ends", ended)
}

func TestWatchEndsOnChange(t *testing.T) {
	file := mount(t)
	_, ended, _ := startWatch(t, file.path())

	file.write("two")
	if err := receiveResult(t, ended); !errors.Is(err, ErrUpdated) || !strings.Contains(err.Error(), file.path()) {
		t.Errorf("Watch() = %v, want %v", err, ErrUpdated)
	}
}

// TestWatchDetectsChangedLinks checks links above the directory of the file, which does not change.
func TestWatchDetectsChangedLinks(t *testing.T) {
	for name, path := range map[string]string{"a link above it": "current/file.conf", "a link that it resolves through": "file.conf"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, text := range []string{"one", "two"} {
				must.Succeed(t, os.Mkdir(filepath.Join(root, text), 0o700))
				must.Succeed(t, os.WriteFile(filepath.Join(root, text, "file.conf"), []byte(text), 0o600))
			}
			must.Succeed(t, os.Mkdir(filepath.Join(root, "elsewhere"), 0o700))
			must.Succeed(t, os.Symlink("../one", filepath.Join(root, "elsewhere/current")))
			must.Succeed(t, os.Symlink("elsewhere/current", filepath.Join(root, "current")))
			must.Succeed(t, os.Symlink("elsewhere/current/file.conf", filepath.Join(root, "file.conf")))
			_, ended, _ := startWatch(t, filepath.Join(root, path))
			must.Succeed(t, os.Symlink("../two", filepath.Join(root, "elsewhere/next")))
			began := time.Now()
			must.Succeed(t, os.Rename(filepath.Join(root, "elsewhere/next"), filepath.Join(root, "elsewhere/current")))
			if err := receiveResult(t, ended); !errors.Is(err, ErrUpdated) {
				t.Errorf("Watch() = %v, want %v", err, ErrUpdated)
			}
			if took := time.Since(began); took > 30*time.Second { // a second on an idle machine
				t.Errorf("the change was detected after %s", took)
			}
		})
	}
}

func TestWatchKeepsContentWhileInvalid(t *testing.T) {
	file := mount(t)
	log, ended, _ := startWatch(t, file.path())

	file.write("wrong")
	log.WaitFor(t, `keeping the last valid one" file=`+file.path()+` error="invalid text: wrong"`)
	select {
	case err := <-ended:
		t.Fatalf("an invalid text ended the watch: %v", err)
	default:
	}
	file.write("two")
	if err := receiveResult(t, ended); !errors.Is(err, ErrUpdated) {
		t.Errorf("Watch() = %v, want %v", err, ErrUpdated)
	}
}

func TestWatchReportsFailureAndRecovery(t *testing.T) {
	file := mount(t)
	read := readFile(t, file.path())
	reported := make(chan error, 100)
	read.Failed = func(err error) { reported <- err }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- read.Watch(ctx, slog.New(slog.DiscardHandler)) }()

	for _, step := range []struct{ write, want string }{
		{"wrong", "invalid text: wrong"}, {"wrong again", "invalid text: wrong again"}, {"one", ""},
	} {
		file.write(step.write)
		err := wait.Receive(t, step.write+" is reported", reported)
		if err == nil && step.want != "" || err != nil && err.Error() != step.want {
			t.Errorf("report for %q: %v", step.write, err)
		}
	}
	cancel()
	if err := receiveResult(t, ended); err != nil || len(reported) > 0 {
		t.Errorf("Watch() = %v, and %d more reports", err, len(reported))
	}
}

func TestWatchDetectsEarlierChange(t *testing.T) {
	file := mount(t)
	read := readFile(t, file.path())
	file.write("two")
	if err := read.Watch(t.Context(), slog.New(slog.DiscardHandler)); !errors.Is(err, ErrUpdated) {
		t.Errorf("Watch() = %v, want %v", err, ErrUpdated)
	}
}

// TestPollIgnoresContentRevertedDuringCheck checks that a result about other content is discarded: the check
// reads the file itself, and finds the old text, which is valid.
func TestPollIgnoresContentRevertedDuringCheck(t *testing.T) {
	file := mount(t)
	read := readFile(t, file.path())
	file.write("wrong")
	check := read.Check
	read.Check = func() error {
		file.write("one")
		return check()
	}
	if changed, err := read.poll(); changed || err != nil {
		t.Errorf("changed %v, error %v", changed, err)
	}
}

func TestPollIgnoresUnchangedContent(t *testing.T) {
	file := mount(t)
	read := readFile(t, file.path())
	file.write("one")
	if changed, err := read.poll(); changed || err != nil {
		t.Errorf("changed %v, error %v", changed, err)
	}
}

func TestPollMissingAndUnreadableFile(t *testing.T) {
	file := mount(t)
	read := readFile(t, file.path())
	if err := os.Remove(file.path()); err != nil {
		t.Fatal(err)
	}
	if changed, err := read.poll(); changed || err != nil {
		t.Errorf("without file: changed %v, error %v", changed, err)
	}
	if err := os.Mkdir(file.path(), 0o700); err != nil {
		t.Fatal(err)
	}
	if changed, err := read.poll(); changed || err == nil || !strings.Contains(err.Error(), file.path()) {
		t.Errorf("with a folder in its place: changed %v, error %v", changed, err)
	}
}

func TestReadMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing.conf")
	if _, err := Read(path, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("Read() = %v", err)
	}
}

func TestWatchEndsWithContext(t *testing.T) {
	file := mount(t)
	_, ended, stop := startWatch(t, file.path())
	stop()
	if err := receiveResult(t, ended); err != nil {
		t.Errorf("Watch() = %v", err)
	}
}
