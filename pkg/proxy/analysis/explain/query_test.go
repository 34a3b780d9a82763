package explain_test

import (
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

func TestParseQuery(t *testing.T) {
	web := model.ObjectName{Namespace: "default", Name: "web"}
	tests := map[string]struct {
		arg   string
		usual string
		want  explain.Query
		err   string // a part of the error's text
	}{
		"a Service":                            {arg: "default/web", want: explain.Query{Service: web}},
		"a port by its name":                   {arg: "default/web:http", want: explain.Query{Service: web, Port: "http"}},
		"a port by its number":                 {arg: "default/web:80", want: explain.Query{Service: web, Port: "80"}},
		"a name in the default namespace":      {arg: "web", usual: "default", want: explain.Query{Service: web}},
		"a port in the default namespace":      {arg: "web:http", usual: "default", want: explain.Query{Service: web, Port: "http"}},
		"a namespace other than the default":   {arg: "default/web", usual: "shop", want: explain.Query{Service: web}},
		"nothing, with a default namespace":    {arg: "", usual: "default", err: `"" is not a Service's name`},
		"a name without any namespace":         {arg: "web", err: "as in default/web"},
		"nothing":                              {arg: "", err: "namespace is missing"},
		"an empty namespace":                   {arg: "/web", err: `"" is not a namespace's name`},
		"an empty name":                        {arg: "default/", err: `"" is not a Service's name`},
		"an empty name before a port":          {arg: "default/:80", err: `"" is not a Service's name`},
		"an empty port":                        {arg: "default/web:", err: `"" is neither a port's name nor its number`},
		"two ports":                            {arg: "default/web:80:81", err: `"80:81" is neither`},
		"a kind in front":                      {arg: "service/default/web", err: `"default/web" is not a Service's name`},
		"upper case":                           {arg: "Default/web", err: `"Default" is not a namespace's name`},
		"spaces":                               {arg: "default/web ", err: `"web " is not a Service's name`},
		"a protocol":                           {arg: "default/web:80/TCP", err: `"80/TCP" is neither`},
		"a name longer than Kubernetes allows": {arg: "default/" + strings.Repeat("a", 64), err: "is not a Service's name"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := explain.ParseQuery(test.arg, test.usual)
			if got != test.want {
				t.Errorf("query %+v, want %+v", got, test.want)
			}
			switch {
			case test.err == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("error %v, want one that contains %q", err, test.err)
			}
		})
	}
}

func TestQueryMatch(t *testing.T) {
	id := func(service, port string) model.PortID {
		namespace, name, _ := strings.Cut(service, "/")
		return model.PortID{Service: model.ObjectName{Namespace: namespace, Name: name}, Port: port, Protocol: model.TCP}
	}
	tests := map[string]struct {
		query  string // empty for the zero Query
		id     model.PortID
		number uint16
		want   bool
	}{
		"no query matches everything":                            {"", id("default/web", "http"), 80, true},
		"a Service matches its port":                             {"default/web", id("default/web", "http"), 80, true},
		"a Service matches a port without a name":                {"default/web", id("default/web", ""), 80, true},
		"a Service does not match another":                       {"default/web", id("default/api", "http"), 80, false},
		"a Service does not match its name in another namespace": {"default/web", id("other/web", "http"), 80, false},
		"a port name matches that port":                          {"default/web:http", id("default/web", "http"), 80, true},
		"a port name does not match another":                     {"default/web:http", id("default/web", "https"), 443, false},
		"a number matches by number":                             {"default/web:80", id("default/web", "http"), 80, true},
		"a number does not match another":                        {"default/web:80", id("default/web", "http"), 8080, false},
		"a number matches a port of that name":                   {"default/web:80", id("default/web", "80"), 443, true},
		"a port of another Service never matches":                {"default/web:80", id("default/api", "80"), 80, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var query explain.Query
			if test.query != "" {
				query = mustParse(t, test.query)
			}
			if got := query.Match(test.id, test.number); got != test.want {
				t.Errorf("query %q matches %v, %d: %v, want %v", test.query, test.id, test.number, got, test.want)
			}
		})
	}
}

func mustParse(t *testing.T, arg string) explain.Query {
	t.Helper()
	query, err := explain.ParseQuery(arg, "")
	if err != nil {
		t.Fatal(err)
	}
	return query
}

func TestAnUnknownServiceSuggestsAnother(t *testing.T) {
	existing := []model.ObjectName{
		{Namespace: "shop", Name: "checkout"}, {Namespace: "default", Name: "website"}, {Namespace: "default", Name: "web"},
	}
	tests := map[string]struct {
		meant string
		want  string // empty for none
	}{
		"a letter too many":                    {"default/webb", "default/web"},
		"a letter missing":                     {"default/we", "default/web"},
		"two letters swapped":                  {"shop/chekcout", "shop/checkout"},
		"the right name, the wrong namespace":  {"default/checkout", "shop/checkout"},
		"a mistyped namespace":                 {"defualt/web", "default/web"},
		"a name that resembles no other":       {"default/database", ""},
		"a short name that resembles no other": {"kube-system/dns", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := "service " + test.meant + " not found here"
			if test.want != "" {
				want += "; did you mean " + test.want + "?"
			}
			if got := explain.ServiceNotFound(mustParse(t, test.meant).Service, existing, " here"); got.Error() != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
