package cgroup

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHierarchiesAreFoundFromTheKernelsFiles(t *testing.T) {
	for name, test := range map[string]struct {
		membership, mountinfo string
		want                  []hierarchy
	}{
		"cgroup v1: below the group we are in": {
			membership: "9:name=systemd:/\n4:memory:/jobs/1\n2:cpu,cpuacct:/\n0::/\n",
			mountinfo: `25 24 0:21 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
26 25 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
27 25 0:23 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
28 25 0:24 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
29 25 0:25 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`,
			want: []hierarchy{
				{controllers: "name=systemd", folder: "/sys/fs/cgroup/systemd"},
				{controllers: "memory", folder: "/sys/fs/cgroup/memory/jobs/1"},
				{controllers: "cpu,cpuacct", folder: "/sys/fs/cgroup/cpu,cpuacct"},
			},
		},
		"in a container: its group is the root of its view": {
			membership: "4:memory:/docker/abc\n",
			mountinfo:  "27 25 0:23 /docker/abc /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n",
			want:       []hierarchy{{controllers: "memory", folder: "/sys/fs/cgroup/memory"}},
		},
		"cgroup v2: next to all others": {
			membership: "0::/user.slice/session-2.scope\n",
			mountinfo:  "27 25 0:23 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
			want:       []hierarchy{{folder: "/sys/fs/cgroup"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseHierarchies(test.membership, test.mountinfo)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(hierarchy{})); diff != "" {
				t.Errorf("the hierarchies differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMachineWithoutCgroupsIsAnError(t *testing.T) {
	if _, err := parseHierarchies("0::/\n", "25 24 0:21 / / rw - ext4 /dev/vda rw\n"); !errors.Is(err, errNoCgroups) {
		t.Errorf("got error %v, want %v", err, errNoCgroups)
	}
}
