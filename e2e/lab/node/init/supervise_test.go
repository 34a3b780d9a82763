package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheEndOfAProgramIsTheEndOfTheNode(t *testing.T) {
	logs = t.TempDir()
	log := "it begins\n" + strings.Repeat("x", 2037) + "\nthe reason\n"
	if err := os.WriteFile(filepath.Join(logs, "kubelet.log"), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	end := "; its log ends with:\n" + strings.Repeat("x", 2036) + "\nthe reason"
	running := map[int]string{7: "kubelet"}
	for name, test := range map[string]struct {
		child childExit
		want  string
	}{
		"a container's process": {child: childExit{pid: 8}},
		"an exit":               {child: childExit{pid: 7, status: unix.WaitStatus(3 << 8)}, want: "kubelet exited: exit status 3" + end},
		"a signal":              {child: childExit{pid: 7, status: unix.WaitStatus(unix.SIGKILL)}, want: "kubelet exited: signal: killed" + end},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := fatalExit(running, test.child); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
