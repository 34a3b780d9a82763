package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseClientsAccepts(t *testing.T) {
	for value, want := range map[string]struct {
		named    []string
		measured bool
	}{
		"ingress/nginx":                     {named: []string{"ingress/nginx"}},
		" ingress/nginx ,\n\tshop/frontend": {named: []string{"ingress/nginx", "shop/frontend"}},
		"a/1,1/a":                           {named: []string{"a/1", "1/a"}},
		clientsOf(8):                        {named: strings.Split(clientsOf(8), ",")},
		"measured":                          {measured: true},
		" \tmeasured\n":                     {measured: true},
		"ingress/nginx, measured":           {named: []string{"ingress/nginx"}, measured: true},
		clientsOf(8) + " ,measured ":        {named: strings.Split(clientsOf(8), ","), measured: true},
		"shop/measured":                     {named: []string{"shop/measured"}}, // a Service that is called so
		"measured/measured, measured":       {named: []string{"measured/measured"}, measured: true},
	} {
		named, measured, err := ParseClients(value, "shop")
		if diff := cmp.Diff(want.named, named); diff != "" || measured != want.measured || err != nil {
			t.Errorf("ParseClients(%q): measured %v, %v (-want +got):\n%s", value, measured, err, diff)
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

func TestParseClientsRefuses(t *testing.T) {
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
		clientsOf(9) + ", measured":          {{AtMostMaxClients, 0, ""}},
		"measured, measured":                 {{MeasuredLast, 1, "measured"}, {Unique, 2, "measured"}},
		"measured, shop/web":                 {{MeasuredLast, 1, "measured"}},
		"measured,":                          {{MeasuredLast, 1, "measured"}, {NotEmpty, 2, ""}},
		"shop/web, Measured":                 {{ServiceName, 2, "Measured"}},
		"auto":                               {{ServiceName, 1, "auto"}},
		"web, shop/web, , shop/web, Shop/us": {{ServiceName, 1, "web"}, {NotEmpty, 3, ""}, {Unique, 4, "shop/web"}, {ServiceName, 5, "Shop/us"}},
	} {
		clients, measured, err := ParseClients(value, "shop")
		var faults EntryErrors
		if clients != nil || measured || !errors.As(err, &faults) {
			t.Errorf("ParseClients(%.80q) = %q, %v, %v; want EntryErrors", value, clients, measured, err)
			continue
		}
		var got []brokenRule
		for _, fault := range faults {
			got = append(got, brokenRule{fault.Rule, fault.Position, fault.Entry})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseClients(%.80q) differs (-want +got):\n%s", value, diff)
		}
	}
}

func TestAClientThatIsNoneSaysWhatWasMeant(t *testing.T) {
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
		"Measured":                       `entry 1 "Measured" is not the namespace and name of a Service; did you mean "measured"?`,
		"MEASURED":                       `did you mean "measured"?`,
		"mesured":                        `did you mean "measured"?`,
		"measure":                        `did you mean "measured"?`,
		"auto":                           `did you mean "measured"?`,
		"Automatic":                      `did you mean "measured"?`,
		"shop/web, auto":                 `entry 2 "auto" is not the namespace and name of a Service; did you mean "measured"?`,
		"measured, shop/web":             `entry 1 "measured" has entries after it; move it to the end`,
		"shop/web,measured, measured":    `entry 3 "measured" is the same as entry 2; write it once, at the end`,
		"'measured'":                     `put neither quotes nor brackets around them`,
		"ingress/nginx measured":         `separate Services with commas`,
		"automation":                     `did you mean "shop/automation"?`,
		" ":                              `; list Services, such as "ingress/nginx, shop/frontend", or write "measured"`,
	} {
		_, _, err := ParseClients(value, "shop")
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 1000 {
			t.Errorf("ParseClients(%.80q): %.500v; want %q in it", value, err, want)
		}
	}
	if _, _, err := ParseClients("web", ""); err == nil || !strings.Contains(err.Error(), `write it as "shop/frontend"`) {
		t.Errorf("without a namespace: %v", err)
	}
}

func FuzzParseClients(f *testing.F) {
	for _, seed := range []string{
		"", ",", "shop/web", "web", "a/b, c/d", "a/b,a/b", "A/b", "a.b.svc", "\xff", clientsOf(9), "a/b/c", " / ", "measured", "a/b, measured",
		"measured,a/b", "measured, measured", "auto", clientsOf(8) + ",measured",
	} {
		f.Add(seed, "shop")
	}
	f.Fuzz(func(t *testing.T, value, namespace string) {
		clients, measured, err := ParseClients(value, namespace)
		if err != nil {
			var faults EntryErrors
			if clients != nil || measured || !errors.As(err, &faults) || len(faults) == 0 || len(faults) > MaxClients+1 {
				t.Fatalf("ParseClients(%q) = %q, %v, %#v", value, clients, measured, err)
			}
			return
		}
		if len(clients) != CountClients(value) || len(clients) > MaxClients || len(clients) == 0 && !measured ||
			slices.Contains(clients, Measured) || len(slices.Compact(slices.Sorted(slices.Values(clients)))) != len(clients) {
			t.Errorf("ParseClients(%q) = %q, %v", value, clients, measured)
		}
		written := slices.Clone(clients)
		if measured {
			written = append(written, Measured)
		}
		again, measuredAgain, err := ParseClients(strings.Join(written, ", "), "")
		if !slices.Equal(clients, again) || measured != measuredAgain || err != nil {
			t.Errorf("%q parses to %q, %v, which parses to %q, %v, %v", value, clients, measured, again, measuredAgain, err)
		}
	})
}
