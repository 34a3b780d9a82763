//go:build linux

package nft

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/netnstest"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// TestTheRealLayoutIsWhatItsTextSays programs Services as the proxy does, twice, and loads the text of the same tables with nft.
func TestTheRealLayoutIsWhatItsTextSays(t *testing.T) {
	namespace, other := netnstest.New(t), netnstest.New(t)
	c := dialOwned(t, namespace)
	config := ruleset.Config{Families: model.Families}
	var services []ruleset.Service
	for _, family := range model.Families {
		config.LocalTraffic = append(config.LocalTraffic, addressesOf(family).cluster)
		services = append(services, realService(family, "plain", 0), realService(family, "sticky", time.Hour))
	}
	var text ruleset.Tables
	for range 2 {
		found := map[model.Family]ruleset.Objects{}
		for _, family := range model.Families {
			found[family] = objects(t, c, family)
		}
		_, plan := ruleset.Resync(config, services, found)
		commit(t, c, plan.Batch)
		if found[model.IPv4].Table {
			continue
		}
		if err := text.Apply(plan.Batch); err != nil {
			t.Fatalf("the tables in memory: %v", err)
		}
	}
	var printed strings.Builder
	if err := text.Print(&printed); err != nil {
		t.Fatal(err)
	}
	other.Load(printed.String())
	if diff := cmp.Diff(sortedJSON(t, other), sortedJSON(t, namespace)); diff != "" {
		t.Errorf("the kernel holds something else than the text says (-text +kernel):\n%s", diff)
	}
}

func realService(family model.Family, name string, affinity time.Duration) ruleset.Service {
	at := addressesOf(family)
	service := model.ObjectName{Namespace: "default", Name: name + "-" + strings.ToLower(family.String())}
	addr := at.service
	if affinity > 0 {
		addr = addr.Next()
	}
	slots := []netip.AddrPort{netip.AddrPortFrom(at.endpoint, 8080), netip.AddrPortFrom(at.endpoint.Next(), 9090)}
	return ruleset.Service{Name: service, Ports: []ruleset.Port{{
		ID:        model.PortID{Service: service, Port: "http", Protocol: model.TCP, Family: family},
		ClusterIP: addr,
		Frontends: []model.Frontend{{Addr: addr, Protocol: model.TCP, Port: 80}},
		Class:     ruleset.BalanceClass(len(slots)),
		Slots:     slots,
		Local:     slots[:1],
		Affinity:  affinity,
	}}}
}

// sortedJSON is nft's listing with elements in an order of their own and without what counts up or says whose the table is.
func sortedJSON(t *testing.T, namespace *netnstest.Namespace) []string {
	t.Helper()
	var listing struct {
		NFTables []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(namespace.NFT("-j", "list", "ruleset")), &listing); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, object := range listing.NFTables {
		for kind, fields := range object {
			for _, varying := range []string{"handle", "flags"} {
				delete(fields, varying)
			}
			if elements, ok := fields["elem"].([]any); ok {
				slices.SortFunc(elements, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			lines = append(lines, fmt.Sprint(kind, " ", fields))
		}
	}
	isRule := func(line string) bool { return strings.HasPrefix(line, "rule ") }
	slices.SortStableFunc(lines, func(a, b string) int {
		if isRule(a) && isRule(b) {
			return strings.Compare(chainOf(a), chainOf(b)) // rules of one chain keep their order
		}
		return strings.Compare(a, b)
	})
	return lines
}

func chainOf(rule string) string {
	_, after, _ := strings.Cut(rule, "chain:")
	chain, _, _ := strings.Cut(after, " ")
	_, family, _ := strings.Cut(rule, "family:")
	return family[:3] + chain
}
