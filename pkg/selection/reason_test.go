package selection

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestSentence(t *testing.T) {
	tests := map[string]struct {
		reason Reason
		want   string
	}{
		"the key, and the quoted value": {
			matched(zone, "eu-1a"), `The ready endpoints that share this node's topology.kubernetes.io/zone, "eu-1a", are used.`,
		},
		"an empty value": {
			matched("empty", ""), `The ready endpoints that share this node's empty, "", are used.`,
		},
		"the endpoint": {
			Reason{Code: HintsIncomplete, Key: TierForZones, Endpoint: addrOf("7")},
			"All ready endpoints are used: the forZones hints are ignored because the ready endpoint 10.0.0.7:80 has none.",
		},
		"the policy": {
			Reason{Code: NoneOnThisNode, Key: internalTrafficPolicy},
			"internalTrafficPolicy is Local, and no usable endpoint is on this node.",
		},
		"a value with a placeholder": {
			Reason{Code: EndpointNodeUnknown, Key: rack, Value: "{key}"},
			`The endpoint runs on node "{key}", which this node does not know, so its example.com/rack is unknown.`,
		},
		"the zero reason": {Reason{}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.reason.Sentence(); got != test.want {
				t.Errorf("sentence is\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestEveryCodeHasASentence(t *testing.T) {
	for _, code := range Codes() {
		reason := Reason{Code: code, Key: "KEY", Value: "VALUE", Endpoint: addrOf("1")}
		sentence := reason.Sentence()
		if sentence == string(code) || !strings.HasSuffix(sentence, ".") || strings.ContainsAny(sentence, "{}") {
			t.Errorf("%s has %q, want a sentence", code, sentence)
		}
	}
}

// The constants are parsed from the source, so that a code that is missing in the table is detected.
func TestCodesListsEveryConstant(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Code
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if ident, ok := spec.Type.(*ast.Ident); ok && ident.Name == "Code" {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil || value != spec.Names[0].Name {
				t.Errorf("constant %s has the value %q, want its name", spec.Names[0].Name, value)
			}
			declared = append(declared, Code(value))
		}
		return true
	})
	if len(declared) == 0 {
		t.Fatal("no constants found")
	}
	for _, codes := range demotionCodes { // generated from rows
		declared = append(declared, codes.only, codes.skipped)
	}
	listed := Codes()
	slices.Sort(declared)
	slices.Sort(listed)
	if !slices.Equal(declared, listed) {
		t.Errorf("declared codes\n%q\nlisted codes\n%q", declared, listed)
	}
}
