package filewatch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long something may take that happens at once on an idle machine.
const patience = 60 * time.Second

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logText) await(t *testing.T, part string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(l.String(), part); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log lacks %s:\n%s", part, l)
		}
	}
}

// mounted is a file as kubelet mounts one of a ConfigMap: a link through ..data, which an update replaces.
type mounted struct {
	t        *testing.T
	dir      string
	versions int
}

func (m *mounted) write(text string) {
	m.t.Helper()
	m.versions++
	version := "..version-" + string(rune('a'+m.versions))
	must := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(m.dir, version), 0o700))
	must(os.WriteFile(filepath.Join(m.dir, version, "file.conf"), []byte(text), 0o600))
	must(os.Symlink(version, filepath.Join(m.dir, "..data_tmp")))
	must(os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	if m.versions == 1 {
		must(os.Symlink("..data/file.conf", m.path()))
	}
}

func (m *mounted) path() string { return filepath.Join(m.dir, "file.conf") }

// readIt reads a file. What contains "wrong" cannot be used.
func readIt(t *testing.T, path string) File {
	t.Helper()
	file, err := Read(path, func() error {
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "wrong") {
			err = errors.New("it says " + string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// watchIt watches a file until the test ends it, and returns its log and how it ends.
func watchIt(t *testing.T, path string) (log *logText, ended <-chan error, stop func()) {
	t.Helper()
	file := readIt(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	log, result := &logText{}, make(chan error, 1)
	go func() { result <- file.Watch(ctx, slog.New(slog.NewTextHandler(log, nil))) }()
	return log, result, cancel
}

func end(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		t.Fatal("the watch does not end")
		return nil
	}
}

func TestANewTextEndsTheWatch(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write("one")
	_, ended, _ := watchIt(t, file.path())

	file.write("two")
	if err := end(t, ended); !errors.Is(err, ErrUpdated) || !strings.Contains(err.Error(), file.path()) {
		t.Errorf("the watch ends with %v", err)
	}
}

func TestAWrongTextIsLoggedAndARightOneAfterItCounts(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write("one")
	log, ended, _ := watchIt(t, file.path())

	file.write("wrong")
	log.await(t, `what it said before stays in force" file=`+file.path()+` error="it says wrong"`)
	select {
	case err := <-ended:
		t.Fatalf("the wrong text ended the watch: %v", err)
	default:
	}
	file.write("two")
	if err := end(t, ended); !errors.Is(err, ErrUpdated) {
		t.Errorf("the watch ends with %v", err)
	}
}

func TestWhyAFileCannotBeUsedIsToldOnceAndSoIsThatItCanBe(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write("one")
	read := readIt(t, file.path())
	told := make(chan error, 100)
	read.Failed = func(err error) { told <- err }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- read.Watch(ctx, slog.New(slog.DiscardHandler)) }()

	for _, step := range []struct{ write, want string }{{"wrong", "it says wrong"}, {"wrong again", "it says wrong again"}, {"one", ""}} {
		file.write(step.write)
		select {
		case err := <-told:
			if err == nil && step.want != "" || err != nil && err.Error() != step.want {
				t.Errorf("%q is told of with %v", step.write, err)
			}
		case <-time.After(patience):
			t.Fatalf("%q is not told of", step.write)
		}
	}
	cancel()
	if err := end(t, ended); err != nil || len(told) > 0 {
		t.Errorf("the watch ends with %v, and %d more were told", err, len(told))
	}
}

func TestATextThatWasChangedBeforeTheWatchBeganCounts(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write("one")
	read := readIt(t, file.path())
	file.write("two")
	if err := read.Watch(t.Context(), slog.New(slog.DiscardHandler)); !errors.Is(err, ErrUpdated) {
		t.Errorf("the watch ends with %v", err)
	}
}

func TestTheSameTextInANewFileIsNoChange(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write("one")
	read := readIt(t, file.path())
	file.write("one")
	if changed, err := read.look(); changed || err != nil {
		t.Errorf("changed %v, error %v", changed, err)
	}
}

func TestAFileThatIsAwayIsNoChangeAndOneThatCannotBeReadIsToldOf(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write("one")
	read := readIt(t, file.path())
	if err := os.Remove(file.path()); err != nil {
		t.Fatal(err)
	}
	if changed, err := read.look(); changed || err != nil {
		t.Errorf("without file: changed %v, error %v", changed, err)
	}
	if err := os.Mkdir(file.path(), 0o700); err != nil {
		t.Fatal(err)
	}
	if changed, err := read.look(); changed || err == nil || !strings.Contains(err.Error(), file.path()) {
		t.Errorf("with a folder in its place: changed %v, error %v", changed, err)
	}
}

func TestAFileThatIsNotThereCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing.conf")
	if _, err := Read(path, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("Read() = %v", err)
	}
}

func TestTheWatchEndsWithItsContext(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write("one")
	_, ended, stop := watchIt(t, file.path())
	stop()
	if err := end(t, ended); err != nil {
		t.Errorf("the watch ends with %v", err)
	}
}
