//go:build linux

package nft

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// dialOwned connects with tables that are owned. The kernel of a test machine is new enough.
func dialOwned(t *testing.T, namespace *netns.Namespace) *Conn {
	t.Helper()
	c := dial(t, namespace, Options{Owned: true})
	if !c.Owned() {
		t.Fatal("this kernel cannot keep a table for its owner: the tests of that need Linux 6.9")
	}
	return c
}

func objects(t *testing.T, c *Conn, family model.Family) ruleset.Objects {
	t.Helper()
	got, err := c.Objects(t.Context(), family)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestDiallingLeavesNothingBehind(t *testing.T) {
	namespace := netns.New(t)
	before := dialOwned(t, namespace)
	generation, err := before.generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dialOwned(t, namespace)
	dial(t, namespace, Options{})
	if after, err := before.generation(t.Context()); err != nil || after != generation {
		t.Errorf("the ruleset's generation went from %d to %d, %v", generation, after, err)
	}
	if got := namespace.NFT("list", "ruleset"); got != "" {
		t.Errorf("nft lists %q, want nothing", got)
	}
}

func TestNoOtherProcessChangesAnOwnedTable(t *testing.T) {
	namespace := netns.New(t)
	c := dialOwned(t, namespace)
	commit(t, c, everything(model.IPv4))
	before := namespace.NFT("list", "ruleset")

	namespace.NFT("flush", "ruleset") // skips the table
	for _, args := range [][]string{
		{"delete", "element", "ip", "vicinity", "cluster-ips", "{ 10.96.0.1 }"},
		{"add", "chain", "ip", "vicinity", "foreign"},
		{"delete", "table", "ip", "vicinity"},
	} {
		if _, err := namespace.Try("nft", args...); err == nil || !strings.Contains(err.Error(), "Operation not permitted") {
			t.Errorf("nft %v gave %v, want that it is not permitted", args, err)
		}
	}
	if diff := cmp.Diff(before, namespace.NFT("list", "ruleset")); diff != "" {
		t.Errorf("the owned table changed:\n%s", diff)
	}
	commit(t, c, new(operations).elements(ruleset.Add, model.IPv4, ruleset.Endpoints, slot(1, "10.244.0.9")).Batch)
}

func TestAnOwnedTableOutlivesItsOwnerAndIsAdopted(t *testing.T) {
	namespace := netns.New(t)
	first := dialOwned(t, namespace)
	commit(t, first, everything(model.IPv4))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	second := dialOwned(t, namespace)
	if got := objects(t, second, model.IPv4); !got.Table || got.NeedsRecreate || len(got.Sets) != len(everySet(model.IPv4)) {
		t.Errorf("after its owner exited: got %+v, want the table with its sets, to be adopted unchanged", got)
	}
	commit(t, second, emptyMaps(model.IPv4))
	if _, err := namespace.Try("nft", "delete", "table", "ip", "vicinity"); err == nil {
		t.Error("another process could delete the adopted table")
	}
	if got := elementsOf(t, second, model.IPv4, ruleset.ClusterIPs); len(got) != 1 {
		t.Errorf("the adopted table has the ClusterIPs %v, want the one from before", got)
	}
}

func TestASecondOwnerGetsTheFirstOwnersPort(t *testing.T) {
	namespace := netns.New(t)
	first := dialOwned(t, namespace)
	commit(t, first, emptyMaps(model.IPv4))
	for _, options := range []Options{{Owned: true}, {}} {
		err := dial(t, namespace, options).Commit(t.Context(), emptyMaps(model.IPv4))
		var owned *TableOwnedError
		if !errors.As(err, &owned) || !errors.Is(err, unix.EPERM) || owned.Port != first.writer.conn.PID() {
			t.Fatalf("with %+v the second owner got %v, want a TableOwnedError with port %d", options, err, first.writer.conn.PID())
		}
		if want := "table ip vicinity is owned by another process (netlink port id "; !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want it to begin with %q", err, want)
		}
	}
}

func TestATableWithOtherFlagsMustBeRecreated(t *testing.T) {
	for name, test := range map[string]struct {
		was, wants Options
	}{
		"from not owned to owned":           {Options{}, Options{Owned: true}},
		"from no longer owned to not owned": {Options{Owned: true}, Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := netns.New(t)
			first := dial(t, namespace, test.was)
			commit(t, first, everything(model.IPv4))
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			second := dial(t, namespace, test.wants)
			if got := objects(t, second, model.IPv4); !got.NeedsRecreate {
				t.Errorf("got %+v, want NeedsRecreate", got)
			}
			if err := second.Commit(t.Context(), emptyMaps(model.IPv4)); !errors.Is(err, unix.EOPNOTSUPP) {
				t.Errorf("adding the table as it is gave %v, want EOPNOTSUPP", err)
			}
			batch := new(operations).do(ruleset.Delete, model.IPv4, ruleset.TableObject{})
			batch.Ops = append(batch.Ops, everything(model.IPv4).Ops...)
			commit(t, second, batch.Batch)
			if got := objects(t, second, model.IPv4); got.NeedsRecreate || len(got.Chains) != len(everyChain(model.IPv4)) {
				t.Errorf("after it was recreated: %+v", got)
			}
		})
	}
}

func TestADormantTableIsActivatedByAddingIt(t *testing.T) {
	namespace := netns.New(t)
	namespace.Load("table ip vicinity { flags dormant; }")
	c := dial(t, namespace, Options{})
	if got := objects(t, c, model.IPv4); got.NeedsRecreate {
		t.Errorf("got %+v, want the table to be adopted unchanged", got)
	}
	commit(t, c, emptyMaps(model.IPv4))
	if got := namespace.NFT("list", "ruleset"); strings.Contains(got, "dormant") {
		t.Errorf("nft lists %q, want an active table", got)
	}
}

func TestCleanupDeletesOurTablesAndNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		families []model.Family
	}{
		"none exists":      {nil},
		"one exists":       {[]model.Family{model.IPv6}},
		"both exist":       {model.Families},
		"the other exists": {[]model.Family{model.IPv4}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := netns.New(t)
			namespace.Load("table ip other { chain vicinity { }\n }\ntable inet vicinity { }\n")
			before := namespace.NFT("list", "ruleset")
			c := dialOwned(t, namespace)
			for _, family := range test.families {
				commit(t, c, everything(family))
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			var deleted []model.Family
			var err error
			namespace.Do(func() { deleted, err = Cleanup(t.Context()) })
			if err != nil || !cmp.Equal(test.families, deleted) {
				t.Errorf("Cleanup gave %v, %v; want %v", deleted, err, test.families)
			}
			if diff := cmp.Diff(before, namespace.NFT("list", "ruleset")); diff != "" {
				t.Errorf("the other tables changed, or ours are left:\n%s", diff)
			}
		})
	}
}

func TestCleanupKeepsATableOfARunningOwner(t *testing.T) {
	namespace := netns.New(t)
	c := dialOwned(t, namespace)
	commit(t, c, emptyMaps(model.IPv6))
	var err error
	namespace.Do(func() { _, err = Cleanup(t.Context()) })
	if err == nil || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "stop its owner first") {
		t.Errorf("Cleanup gave %v, want that the owner must be stopped first", err)
	}
	if got := objects(t, c, model.IPv6); !got.Table {
		t.Error("the table was deleted")
	}
}

func TestMissingPrerequisitesAreExplained(t *testing.T) {
	for name, test := range map[string]struct{ got, want string }{
		"privilege":      {explainSetupError(unix.EPERM).Error(), "programming nftables needs root (CAP_NET_ADMIN): run as root"},
		"nf_tables":      {explainSetupError(unix.EPROTONOSUPPORT).Error(), "this kernel has no nf_tables: load the module"},
		"a newer kernel": {checkRelease("5.10.0-28-amd64").Error(), "this kernel is Linux 5.10.0-28-amd64: use 5.13 or newer"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.HasPrefix(test.got, test.want) {
				t.Errorf("got %q, want it to begin with %q", test.got, test.want)
			}
		})
	}
	for _, release := range []string{"5.13.0", "6.1.0-rpi", "5.15", "10.0-rc1"} {
		if err := checkRelease(release); err != nil {
			t.Errorf("kernel %s: %v", release, err)
		}
	}
	if err := checkRelease("plan9"); err == nil {
		t.Error("an invalid version is accepted")
	}
}

func TestWithoutPrivilegeDialReportsWhatToDo(t *testing.T) {
	namespace := netns.New(t)
	var err error
	namespace.Do(func() {
		err = withoutNetAdmin(func() error {
			_, err := Dial(Options{})
			return err
		})
	})
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "run as root") {
		t.Errorf("Dial gave %v, want it to require root", err)
	}
}

// withoutNetAdmin calls f without CAP_NET_ADMIN, on this thread, which the caller has locked.
func withoutNetAdmin(f func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var before [2]unix.CapUserData
	if err := unix.Capget(&header, &before[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	without := before
	without[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &without[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	return errors.Join(f(), os.NewSyscallError("capset", unix.Capset(&header, &before[0])))
}

func TestThisKernelHasTablesOfBothFamilies(t *testing.T) {
	if got := dial(t, netns.New(t), Options{}).Families(); !slices.Equal(got, model.Families) {
		t.Errorf("families %v, want %v", got, model.Families)
	}
}
