package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
)

func TestOnlyAValidTextIsAnUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(header+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("mode: nftables\n")
	read, err := Read(path, VicinityConfig{})
	if err != nil {
		t.Fatal(err)
	}
	watched := read.Watched()

	write("clusterCIDR: everything\n")
	const want = `clusterCIDR: "everything" is not a CIDR`
	if err := watched.Check(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("an invalid text: %v, want %s", err, want)
	}
	write("clusterCIDR: 10.0.0.0/8\n")
	if err := watched.Watch(t.Context(), slog.New(slog.DiscardHandler)); !errors.Is(err, filewatch.ErrUpdated) {
		t.Errorf("the watch ends with %v", err)
	}
}
