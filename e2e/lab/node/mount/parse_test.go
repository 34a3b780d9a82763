package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestKubeletsMountRequestsAreParsed(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want request
	}{
		"a tmpfs for a Secret": {
			args: []string{"-t", "tmpfs", "-o", "size=1024,noswap", "tmpfs", "/var/lib/kubelet/x"},
			want: request{source: "tmpfs", target: "/var/lib/kubelet/x", kind: "tmpfs", data: "size=1024,noswap"},
		},
		"a bind mount": {
			args: []string{"--no-canonicalize", "-o", "bind", "/a", "/b"},
			want: request{source: "/a", target: "/b", flags: unix.MS_BIND},
		},
		"a bind mount that becomes read-only": {
			args: []string{"-o", "bind,remount,ro", "/a", "/b"},
			want: request{source: "/a", target: "/b", flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(test.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(request{})); diff != "" {
				t.Errorf("the request differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownMountArgumentsAreRejected(t *testing.T) {
	for _, args := range [][]string{{"/a"}, {"--make-slave", "/a", "/b"}, {"/a", "/b", "/c"}, {"/a", "/b", "-t"}} {
		if got, err := parse(args); err == nil {
			t.Errorf("%q was parsed as %+v, want an error", args, got)
		}
	}
}
