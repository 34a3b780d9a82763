package certs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// waitTimeout bounds waits for events that happen at once on an idle machine.
const waitTimeout = 60 * time.Second

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// recordingObserver records the calls of an Observer.
type recordingObserver struct {
	mu     sync.Mutex
	leaves []time.Time
	failed []string
}

func (o *recordingObserver) CertificateExpires(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leaves = append(o.leaves, at)
}

func (o *recordingObserver) AuthorityExpires(time.Time) {}

func (o *recordingObserver) CertificateFailed(_ Operation, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = append(o.failed, err.Error())
}

// failureCount returns how many of the reported failures contain a text.
func (o *recordingObserver) failureCount(text string) (count int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, failed := range o.failed {
		if strings.Contains(failed, text) {
			count++
		}
	}
	return count
}

func (o *recordingObserver) servedCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.leaves)
}

// mounted is a folder as the kubelet mounts a Secret: files are links through ..data, which an update replaces.
type mounted struct {
	t        *testing.T
	dir      string
	versions int
}

func (m *mounted) update(certificate, key []byte) {
	m.t.Helper()
	m.versions++
	version := filepath.Join(m.dir, "..version"+string(rune('a'+m.versions)))
	must(m.t, os.Mkdir(version, 0o700))
	must(m.t, os.WriteFile(filepath.Join(version, "tls.crt"), certificate, 0o600))
	must(m.t, os.WriteFile(filepath.Join(version, "tls.key"), key, 0o600))
	previous, _ := os.Readlink(filepath.Join(m.dir, "..data"))
	must(m.t, os.Symlink(filepath.Base(version), filepath.Join(m.dir, "..data_tmp")))
	must(m.t, os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	for _, name := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Lstat(m.path(name)); os.IsNotExist(err) {
			must(m.t, os.Symlink(filepath.Join("..data", name), m.path(name)))
		}
	}
	if previous != "" {
		must(m.t, os.RemoveAll(filepath.Join(m.dir, previous)))
	}
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair returns a certificate, and its two files.
func pair(t *testing.T, at time.Time) (leaf *tls.Certificate, certificate, key []byte) {
	t.Helper()
	ca, leaf := newPair(t, at)
	data, err := (&content{trusted: bundle{ca.Certificate}, signer: ca, leaf: leaf}).data()
	must(t, err)
	return leaf, data[leafEntry], data[leafKeyEntry]
}

func TestFilesReloadsChangedPair(t *testing.T) {
	folder := &mounted{t: t, dir: t.TempDir()}
	first, certificate, key := pair(t, time.Now())
	folder.update(certificate, key)
	reported := &recordingObserver{}
	files, err := NewFiles(t.Context(), FilesSettings{
		Certificate: folder.path("tls.crt"), Key: folder.path("tls.key"), Interval: 100 * time.Millisecond, Log: discardLog(), Observer: reported,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- files.Run(ctx) }()
	serves := func(want *tls.Certificate) bool {
		got, err := files.GetCertificate(nil)
		return err == nil && got.Leaf.Equal(want.Leaf)
	}
	if !serves(first) || reported.servedCount() != 1 {
		t.Fatalf("the first pair is not served, or the observer was notified %d times", reported.servedCount())
	}

	second, certificate, key := pair(t, time.Now())
	folder.update(certificate, key)
	wait.Until(t, "the second pair", func() bool { return serves(second) })

	_, otherCertificate, _ := pair(t, time.Now())
	folder.update(otherCertificate, key)
	wait.Until(t, "the failure of a mismatched key", func() bool { return reported.failureCount("does not match") > 0 })
	if !serves(second) {
		t.Error("the previous pair is no longer served")
	}

	_, certificate, key = pair(t, time.Now().Add(-100*day))
	servedBefore := reported.servedCount()
	folder.update(certificate, key)
	wait.Until(t, "the failure of the pair that has expired", func() bool { return reported.failureCount("expired at") > 0 })
	if !serves(second) || reported.servedCount() != servedBefore {
		t.Error("an expired pair replaced a valid one")
	}

	third, certificate, key := pair(t, time.Now())
	folder.update(certificate, key)
	wait.Until(t, "the third pair", func() bool { return serves(third) })
	cancel()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(waitTimeout):
		t.Error("Run did not return after its context ended")
	}
}

func TestNewFilesRejectsUnusablePair(t *testing.T) {
	_, certificate, _ := pair(t, time.Now())
	_, _, key := pair(t, time.Now())
	folder := &mounted{t: t, dir: t.TempDir()}
	folder.update(certificate, key)
	for name, path := range map[string]string{"files that do not match": folder.path("tls.crt"), "a missing file": folder.path("none")} {
		t.Run(name, func(t *testing.T) {
			_, err := NewFiles(t.Context(), FilesSettings{
				Certificate: path, Key: folder.path("tls.key"), Log: discardLog(), Observer: &recordingObserver{},
			})
			if err == nil {
				t.Error("NewFiles returned no error")
			}
		})
	}
}

func TestNewFilesServesExpiredPair(t *testing.T) {
	folder := &mounted{t: t, dir: t.TempDir()}
	_, certificate, key := pair(t, time.Now().Add(-100*day))
	folder.update(certificate, key)
	reported := &recordingObserver{}
	files, err := NewFiles(t.Context(), FilesSettings{
		Certificate: folder.path("tls.crt"), Key: folder.path("tls.key"), Log: discardLog(), Observer: reported,
	})
	must(t, err)
	if got, err := files.GetCertificate(nil); err != nil || got.Leaf.NotAfter.After(time.Now()) {
		t.Errorf("served: %v, %v; want the expired certificate, because there is no other", got, err)
	}
	if reported.failureCount("expired at") != 1 || reported.servedCount() != 1 {
		t.Errorf("%d failures and %d certificates were reported, want one of each", reported.failureCount("expired at"), reported.servedCount())
	}
}
