//go:build linux

package sabotage

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// ownTable creates our IPv4 table with the owner flag and keeps it until the test ends.
func ownTable(t *testing.T, namespace *netns.Namespace) {
	t.Helper()
	var owner *nft.Conn
	var err error
	namespace.Do(func() { owner, err = nft.Dial(nft.Options{Owned: true}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Close() })
	if !owner.Owned() {
		t.Fatal("this kernel does not support table owners with persist: the test needs Linux 6.9")
	}
	batch := ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Add, Family: model.IPv4, Object: ruleset.TableObject{}}}}
	if err := owner.Commit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}
