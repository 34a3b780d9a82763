package xds

import (
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

func TestParseName(t *testing.T) {
	web := portRef{model.ObjectName{Namespace: "shop", Name: "web"}, 80}
	for name, want := range map[string]portRef{
		"web.shop.svc.cluster.local:80":           web,
		"web.shop.svc.cluster.local.:80":          web,
		"web.shop.svc:80":                         web,
		"web.shop:80":                             web,
		"outbound|80||web.shop.svc.cluster.local": web,
		"web.svc:80":                              {model.ObjectName{}, 0}, // a Service without its namespace
		"web:80":                                  {},
		"web.shop":                                {},
		"web.shop:http":                           {},
		"web.shop:0":                              {},
		"web.shop:080":                            {},
		"web.shop:+80":                            {},
		"web.shop:65536":                          {},
		"web.shop:80:80":                          {},
		"web.shop.example.com:80":                 {},
		"web.shop.svc.cluster.example:80":         {},
		".shop.svc:80":                            {},
		"web..svc:80":                             {},
		"outbound|80|v1|web.shop.svc.cluster.local":   {},
		"outbound|80|web.shop.svc.cluster.local":      {},
		"inbound|80||web.shop.svc.cluster.local":      {},
		"xdstp://example.org/envoy.config/web.shop:1": {},
		"*":                                      {},
		"":                                       {},
		":":                                      {},
		strings.Repeat("a", 10_000) + ".shop:80": {},
	} {
		got, ok := parseName(name, "cluster.local")
		if got != want || ok != (want != portRef{}) {
			t.Errorf("%.60q is %v (%t), want %v", name, got, ok, want)
		}
	}
	if got, ok := parseName(web.name("cluster.local"), "cluster.local"); got != web || !ok {
		t.Errorf("%s is parsed as %v", web.name("cluster.local"), got)
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("web.shop.svc.cluster.local:80")
	f.Add("outbound|80||web.shop.svc.cluster.local")
	f.Fuzz(func(t *testing.T, name string) {
		ref, ok := parseName(name, "cluster.local")
		if !ok {
			return
		}
		if again, ok := parseName(ref.name("cluster.local"), "cluster.local"); !ok || again != ref {
			t.Errorf("%q is %v, and its name is parsed as %v", name, ref, again)
		}
	})
}
