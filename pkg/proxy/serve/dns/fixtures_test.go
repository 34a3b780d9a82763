package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

var testZone = Zone{Domain: "cluster.local", TTL: 5 * time.Second}

// fixture is a headless Service shop/web from the point of view of node n1 in zone a. Its ports are http and an
// unnamed UDP one, which its endpoints serve at 8080 and 5353.
type fixture struct {
	keys []policy.Key
	// endpoints are "ADDRESS ZONE", with optional words: "unready", "terminating", "name=HOSTNAME".
	endpoints []string
	families  []model.Family // the proxy's families; both if empty
}

func (f fixture) decisions() []selection.Decision {
	name := model.ObjectName{Namespace: "shop", Name: "web"}
	service := &model.Service{
		Name: name, IsHeadless: true, Topology: policy.Topology{Keys: f.keys},
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}, {Protocol: model.UDP, Port: 53}},
	}
	change := model.Change{
		Services: map[model.ObjectName]*model.Service{name: service},
		Slices:   map[model.ObjectName]*model.EndpointSlice{},
		Nodes:    map[string]*model.Node{"n1": {Name: "n1", Labels: map[string]string{string(policy.Zone): "a"}}},
	}
	for _, text := range f.endpoints {
		addEndpoint(change.Slices, name, text)
	}
	cluster := model.NewCluster("n1")
	cluster.Apply(change)
	families := f.families
	if len(families) == 0 {
		families = model.Families
	}
	return selection.NewPlanner(cluster).Decide(name, families)
}

func addEndpoint(all map[model.ObjectName]*model.EndpointSlice, service model.ObjectName, text string) {
	words := strings.Fields(text)
	addr := netip.MustParseAddr(words[0])
	family := model.FamilyOf(addr)
	name := model.ObjectName{Namespace: service.Namespace, Name: "web-" + strings.ToLower(family.String())}
	slice := all[name]
	if slice == nil {
		slice = &model.EndpointSlice{Name: name, Service: service, Family: family, Ports: []model.SlicePort{
			{Name: "http", Protocol: model.TCP, Port: 8080}, {Protocol: model.UDP, Port: 5353},
		}}
		all[name] = slice
	}
	endpoint := model.SliceEndpoint{Addr: addr, Endpoint: model.Endpoint{Zone: words[1], Ready: true, Serving: true}}
	hostname := ""
	for _, word := range words[2:] {
		switch {
		case word == "unready":
			endpoint.Ready, endpoint.Serving = false, false
		case word == "terminating":
			endpoint.Ready, endpoint.Terminating = false, true
		case strings.HasPrefix(word, "name="):
			hostname = strings.TrimPrefix(word, "name=")
		default:
			panic("unknown word: " + word)
		}
	}
	slice.Endpoints, slice.Hostnames = append(slice.Endpoints, endpoint), append(slice.Hostnames, hostname)
}

// lookup returns a lookup function that finds only shop/web.
func (f fixture) lookup() func(model.ObjectName) *Records {
	records := NewRecords(f.decisions(), testZone)
	return func(name model.ObjectName) *Records {
		if name != (model.ObjectName{Namespace: "shop", Name: "web"}) {
			return nil
		}
		return records
	}
}

// firstTarget always picks the first target.
func firstTarget(uint32) uint32 { return 0 }

// newQuery returns the query "TYPE NAME".
func newQuery(t *testing.T, text string) *miekg.Msg {
	t.Helper()
	typ, name, _ := strings.Cut(text, " ")
	typeCode, known := miekg.StringToType[typ]
	if !known {
		t.Fatalf("unknown type %s", typ)
	}
	return new(miekg.Msg).SetQuestion(name, typeCode)
}

// exchange sends a query that another library wrote, and parses the response with that library.
func exchange(t *testing.T, query *miekg.Msg, transport Transport, lookup func(model.ObjectName) *Records) (*miekg.Msg, int, Result) {
	t.Helper()
	packed, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	answer, result := testZone.Answer(packed, transport, lookup, firstTarget)
	var parsed miekg.Msg
	if err := parsed.Unpack(answer); err != nil {
		t.Fatalf("parse response %x: %v", answer, err)
	}
	if parsed.Id != query.Id || !parsed.Response || parsed.RecursionAvailable {
		t.Errorf("header %+v does not match the query's %+v", parsed.MsgHdr, query.MsgHdr)
	}
	return &parsed, len(answer), result
}

// answerText formats a response on one line: its code, and the sorted records of each section.
func answerText(answer *miekg.Msg) string {
	parts := []string{miekg.RcodeToString[answer.Rcode]}
	if answer.Truncated {
		parts = append(parts, "truncated")
	}
	for _, section := range []struct {
		name    string
		records []miekg.RR
	}{{"", answer.Answer}, {"authority:", answer.Ns}, {"additional:", answer.Extra}} {
		var texts []string
		for _, record := range section.records {
			if record.Header().Rrtype == miekg.TypeOPT {
				continue
			}
			header := record.Header()
			rest := strings.TrimPrefix(record.String(), header.String())
			texts = append(texts, fmt.Sprintf("%s %s", miekg.TypeToString[header.Rrtype], strings.ReplaceAll(rest, "\t", " ")))
		}
		slices.Sort(texts)
		if len(texts) > 0 {
			parts = append(parts, strings.TrimSpace(section.name+" "+strings.Join(texts, ", ")))
		}
	}
	return strings.Join(parts, "; ")
}
