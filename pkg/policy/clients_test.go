package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseClientsAccepts(t *testing.T) {
	for value, want := range map[string][]string{
		"ingress/nginx":                     {"ingress/nginx"},
		" ingress/nginx ,\n\tshop/frontend": {"ingress/nginx", "shop/frontend"},
		"a/1,1/a":                           {"a/1", "1/a"},
		clientsOf(8):                        strings.Split(clientsOf(8), ","),
		"measured/measured":                 {"measured/measured"}, // a Service with that name
	} {
		clients, err := ParseClients(value, "shop")
		if diff := cmp.Diff(want, clients); diff != "" || err != nil {
			t.Errorf("ParseClients(%q): %v (-want +got):\n%s", value, err, diff)
		}
	}
}

func clientsOf(count int) string {
	var clients []string
	for i := range count {
		clients = append(clients, "shop/web-"+strings.Repeat("x", i)+"1")
	}
	return strings.Join(clients, ",")
}

func TestParseClientsRejects(t *testing.T) {
	for value, want := range map[string][]brokenRule{
		"":                                   {{NotEmpty, 0, ""}},
		" \n":                                {{NotEmpty, 0, ""}},
		"shop/web,":                          {{NotEmpty, 2, ""}},
		clientsOf(9):                         {{AtMostMaxClients, 0, ""}},
		strings.Repeat(",", 1<<18):           {{AtMostMaxClients, 0, ""}},
		"shop/web, shop/web":                 {{Unique, 2, "shop/web"}},
		"web":                                {{ServiceName, 1, "web"}},
		"shop/":                              {{ServiceName, 1, "shop/"}},
		"/web":                               {{ServiceName, 1, "/web"}},
		"a/b/c":                              {{ServiceName, 1, "a/b/c"}},
		"shop/web; shop/api":                 {{ServiceName, 1, "shop/web; shop/api"}},
		"shop/*":                             {{ServiceName, 1, "shop/*"}},
		"\xff/\xff":                          {{ServiceName, 1, "\xff/\xff"}},
		"shop/" + strings.Repeat("x", 64):    {{ServiceName, 1, "shop/" + strings.Repeat("x", 64)}},
		"measured":                           {{ServiceName, 1, "measured"}},
		"shop/web, measured":                 {{ServiceName, 2, "measured"}},
		"auto":                               {{ServiceName, 1, "auto"}},
		"web, shop/web, , shop/web, Shop/us": {{ServiceName, 1, "web"}, {NotEmpty, 3, ""}, {Unique, 4, "shop/web"}, {ServiceName, 5, "Shop/us"}},
	} {
		clients, err := ParseClients(value, "shop")
		var entryErrors EntryErrors
		if clients != nil || !errors.As(err, &entryErrors) {
			t.Errorf("ParseClients(%.80q) = %q, %v; want EntryErrors", value, clients, err)
			continue
		}
		var got []brokenRule
		for _, entryError := range entryErrors {
			got = append(got, brokenRule{entryError.Rule, entryError.Position, entryError.Entry})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseClients(%.80q) differs (-want +got):\n%s", value, diff)
		}
	}
}

func TestAnInvalidClientSuggestsAValidOne(t *testing.T) {
	for value, want := range map[string]string{
		"frontend":                       `entry 1 "frontend" lacks the namespace of the Service; did you mean "shop/frontend"?`,
		"Frontend":                       `did you mean "shop/frontend"?`,
		"nginx.ingress":                  `did you mean "ingress/nginx"?`,
		"nginx.ingress.svc":              `did you mean "ingress/nginx"?`,
		"nginx.ingress.svc.cluster.test": `did you mean "ingress/nginx"?`,
		"Ingress/NGINX":                  `is not the namespace and name of a Service; did you mean "ingress/nginx"?`,
		"ingress/nginx shop/web":         `separate Services with commas`,
		`["ingress/nginx"]`:              `separate Services with commas`,
		"nginx.example.com":              `write it as "shop/frontend"`,
		strings.Repeat("x", 1<<18):       `write it as "shop/frontend"`,
		"measured": `entry 1 "measured" is not the namespace and name of a Service; did you mean the annotation ` +
			`vicinity.dev/demand-source=measured?`,
		"ingress/nginx, measured": `did you mean the annotation vicinity.dev/demand-source=measured?`,
		"Measured":                `did you mean the annotation vicinity.dev/demand-source=measured?`,
		"mesured":                 `did you mean the annotation vicinity.dev/demand-source=measured?`,
		"auto":                    `did you mean the annotation vicinity.dev/demand-source=measured?`,
		"Automatic":               `did you mean the annotation vicinity.dev/demand-source=measured?`,
		"'measured'":              `put neither quotes nor brackets around them`,
		"ingress/nginx measured":  `separate Services with commas`,
		"automation":              `did you mean "shop/automation"?`,
		" ":                       `; list Services, such as "ingress/nginx, shop/frontend", or remove the annotation`,
	} {
		_, err := ParseClients(value, "shop")
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 1000 {
			t.Errorf("ParseClients(%.80q): %.500v; want %q in it", value, err, want)
		}
	}
	if _, err := ParseClients("web", ""); err == nil || !strings.Contains(err.Error(), `write it as "shop/frontend"`) {
		t.Errorf("error without a namespace is %v, want the general remedy", err)
	}
}

func FuzzParseClients(f *testing.F) {
	for _, seed := range []string{
		"", ",", "shop/web", "web", "a/b, c/d", "a/b,a/b", "A/b", "a.b.svc", "\xff", clientsOf(9), "a/b/c", " / ", "measured", "a/b, measured",
	} {
		f.Add(seed, "shop")
	}
	f.Fuzz(func(t *testing.T, value, namespace string) {
		clients, err := ParseClients(value, namespace)
		if err != nil {
			var entryErrors EntryErrors
			if clients != nil || !errors.As(err, &entryErrors) || len(entryErrors) == 0 || len(entryErrors) > MaxClients+1 {
				t.Fatalf("ParseClients(%q) = %q, %#v", value, clients, err)
			}
			return
		}
		if len(clients) != strings.Count(value, ",")+1 || len(clients) > MaxClients ||
			len(slices.Compact(slices.Sorted(slices.Values(clients)))) != len(clients) {
			t.Errorf("ParseClients(%q) = %q", value, clients)
		}
		again, err := ParseClients(strings.Join(clients, ", "), "")
		if !slices.Equal(clients, again) || err != nil {
			t.Errorf("%q parses to %q, which parses to %q, %v", value, clients, again, err)
		}
	})
}
