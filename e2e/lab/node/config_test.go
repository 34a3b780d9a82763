package node

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cgroup"
)

// parseJSON parses JSON.
func parseJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var parsed map[string]any
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return parsed
}

func TestKubeletChangesNeitherTheMachineNorTheRuleset(t *testing.T) {
	text, err := kubeletConfiguration(netip.MustParseAddr("10.96.0.10"))
	if err != nil {
		t.Fatal(err)
	}
	got := parseJSON(t, text)
	for key, want := range map[string]any{
		"makeIPTablesUtilChains": false,
		"cgroupDriver":           "cgroupfs",
		"failCgroupV1":           false,
		"clusterDNS":             []any{"10.96.0.10"},
	} {
		if diff := cmp.Diff(want, got[key]); diff != "" {
			t.Errorf("setting %s differs (-want +got):\n%s", key, diff)
		}
	}
	anonymous := got["authentication"].(map[string]any)["anonymous"]
	if diff := cmp.Diff(map[string]any{"enabled": false}, anonymous); diff != "" {
		t.Errorf("anonymous authentication differs (-want +got):\n%s", diff)
	}
}

func TestKubeletGetsItsNodesNameLabelsAndAddresses(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd00:30::1")}
	flags := kubeletFlags("node-1", addrs, map[string]string{"zone": "zone-a", "rack": "rack-1"})
	for _, want := range []string{
		"--hostname-override=node-1", "--node-ip=172.30.0.1,fd00:30::1", "--node-labels=rack=rack-1,zone=zone-a", "--oom-score-adj=0",
	} {
		if !slices.Contains(flags, want) {
			t.Errorf("flags lack %s: %q", want, flags)
		}
	}
}

func TestPodsGetAddressesOfEachFamilyAndLinksOfTheirOwn(t *testing.T) {
	text, err := cniNetworks(netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:244:1::/64"))
	if err != nil {
		t.Fatal(err)
	}
	plugins := parseJSON(t, text)["plugins"].([]any)
	if len(plugins) != 1 {
		t.Fatalf("%d plugins, want one", len(plugins))
	}
	plugin := plugins[0].(map[string]any)
	if plugin["type"] != "ptp" {
		t.Errorf("plugin %v, want ptp", plugin["type"])
	}
	if masquerades, ok := plugin["ipMasq"]; ok {
		t.Errorf("ipMasq is %v: only the service proxy should masquerade", masquerades)
	}
	want := []any{
		[]any{map[string]any{"subnet": "10.244.1.0/24"}},
		[]any{map[string]any{"subnet": "fd00:244:1::/64"}},
	}
	if diff := cmp.Diff(want, plugin["ipam"].(map[string]any)["ranges"]); diff != "" {
		t.Errorf("the ranges differ (-want +got):\n%s", diff)
	}
}

func TestEverySettingOfTheMachineThatKubeletWritesHasAStandIn(t *testing.T) {
	mounts := sysctlMounts("/run/node-1")
	for _, setting := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
		"kernel/keys/root_maxbytes",
	} {
		want := Mount{Source: "/run/node-1/etc/lab/sysctl/" + setting, Target: "/proc/sys/" + setting, Type: "bind", File: true}
		if !slices.Contains(mounts, want) {
			t.Errorf("%s has no stand-in", setting)
		}
	}
}

func TestANodeSeesItsOwnCgroupsOnly(t *testing.T) {
	v1 := cgroupMounts(cgroup.Node{Mounts: []cgroup.Mount{
		{Type: "cgroup", Options: "cpu,cpuacct", Target: "cpu,cpuacct"}, {Type: "cgroup", Options: "name=systemd", Target: "systemd"},
	}})
	v2 := cgroupMounts(cgroup.Node{Leaf: "/sys/fs/cgroup/lab/node-1/init", Mounts: []cgroup.Mount{{Type: "cgroup2"}}})
	targets := func(mounts []Mount) (all []string) {
		for _, mount := range mounts {
			all = append(all, mount.Type+" "+mount.Target+" "+mount.Data)
		}
		return all
	}
	wantV1 := []string{
		"tmpfs /sys/fs/cgroup mode=755", "cgroup /sys/fs/cgroup/cpu,cpuacct cpu,cpuacct", "cgroup /sys/fs/cgroup/systemd name=systemd",
	}
	if diff := cmp.Diff(wantV1, targets(v1)); diff != "" {
		t.Errorf("mounts with cgroup v1 differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"cgroup2 /sys/fs/cgroup "}, targets(v2)); diff != "" {
		t.Errorf("mounts with cgroup v2 differ (-want +got):\n%s", diff)
	}
}

func TestContainerdHasTheImageOfPodsFirstProcess(t *testing.T) {
	config := ContainerdConfig("/root", "/state", "/run/containerd.sock", "vicinity.dev/lab-pause:lab")
	if !strings.Contains(config, `sandbox = "vicinity.dev/lab-pause:lab"`) {
		t.Errorf("the pause image is not the sandbox image:\n%s", config)
	}
}
