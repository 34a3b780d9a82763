package config

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

func (l *logText) contains(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// mounted writes a configuration as kubelet mounts a ConfigMap: a link through ..data, which an update replaces.
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
	must(os.WriteFile(filepath.Join(m.dir, version, "config.conf"), []byte(text), 0o600))
	must(os.Symlink(version, filepath.Join(m.dir, "..data_tmp")))
	must(os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	if m.versions == 1 {
		must(os.Symlink("..data/config.conf", m.path()))
	}
}

func (m *mounted) path() string { return filepath.Join(m.dir, "config.conf") }

// watchIt watches a file until the test ends it, and returns its log and how it ends.
func watchIt(t *testing.T, path string) (log *logText, ended <-chan error, stop func()) {
	t.Helper()
	file, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
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
	file.write(header + "mode: nftables\n")
	_, ended, _ := watchIt(t, file.path())

	file.write(header + "mode: nftables\nclusterCIDR: 10.244.0.0/16\n")
	if err := end(t, ended); !errors.Is(err, ErrUpdated) || !strings.Contains(err.Error(), file.path()) {
		t.Errorf("the watch ends with %v", err)
	}
}

func TestAWrongTextIsLoggedAndARightOneAfterItCounts(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write(header + "mode: nftables\n")
	log, ended, _ := watchIt(t, file.path())

	file.write(header + "clusterCIDR: everything\n")
	const told = `clusterCIDR: \"everything\" is not a CIDR`
	for deadline := time.Now().Add(patience); !log.contains(told); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log lacks %s: %s", told, log.text.String())
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the wrong text ended the watch: %v", err)
	default:
	}
	file.write(header + "clusterCIDR: 10.0.0.0/8\n")
	if err := end(t, ended); !errors.Is(err, ErrUpdated) {
		t.Errorf("the watch ends with %v", err)
	}
}

func TestATextThatWasChangedBeforeTheWatchBeganCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(header)
	file, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	write(header + "clusterCIDR: 10.0.0.0/8\n")
	if err := file.Watch(t.Context(), slog.New(slog.DiscardHandler)); !errors.Is(err, ErrUpdated) {
		t.Errorf("the watch ends with %v", err)
	}
}

func TestTheSameTextInANewFileIsNoChange(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write(header)
	read, err := Read(file.path())
	if err != nil {
		t.Fatal(err)
	}
	file.write(header)
	if changed, err := read.look(); changed || err != nil {
		t.Errorf("changed %v, error %v", changed, err)
	}
	if err := os.Remove(file.path()); err != nil {
		t.Fatal(err)
	}
	if changed, err := read.look(); changed || err != nil {
		t.Errorf("without file: changed %v, error %v", changed, err)
	}
}

func TestTheWatchEndsWithItsContext(t *testing.T) {
	file := &mounted{t: t, dir: t.TempDir()}
	file.write(header)
	_, ended, stop := watchIt(t, file.path())
	stop()
	if err := end(t, ended); err != nil {
		t.Errorf("the watch ends with %v", err)
	}
}
