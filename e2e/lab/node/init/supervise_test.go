package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheEndOfAProgramIsTheEndOfTheNode(t *testing.T) {
	running := map[int]string{7: "kubelet"}
	for name, test := range map[string]struct {
		child ended
		want  string
	}{
		"a container's process": {child: ended{pid: 8}},
		"an exit":               {child: ended{pid: 7, status: unix.WaitStatus(3 << 8)}, want: "kubelet ended: exit status 3"},
		"a signal":              {child: ended{pid: 7, status: unix.WaitStatus(unix.SIGKILL)}, want: "kubelet ended: signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := judge(running, test.child); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
