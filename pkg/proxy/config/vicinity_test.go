package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const vicinityHeader = "apiVersion: " + VicinityAPIVersion + "\nkind: " + VicinityKind + "\n"

// Our document may precede or follow kube-proxy's, or be the only one.
func TestOurDocumentMayBeInKubeProxysFile(t *testing.T) {
	vicinity := VicinityConfig{Fields: map[string]bool{"dnsTTL": false, "podNames": true}, Check: func(values map[string]string) error {
		if values["dnsTTL"] == "never" {
			return errors.New("dnsTTL never: no time")
		}
		return nil
	}}
	kubeProxyDocument, vicinityDocument := header+"clusterCIDR: 10.0.0.0/8\n", vicinityHeader+"dnsTTL: 5s\npodNames: true\n"
	want := map[string]string{"dnsTTL": "5s", "podNames": "true"}
	for title, test := range map[string]struct {
		text, cidr string
		own        map[string]string
		err        string
	}{
		"after":   {kubeProxyDocument + "---\n" + vicinityDocument, "10.0.0.0/8", want, ""},
		"before":  {vicinityDocument + "---\n" + kubeProxyDocument, "10.0.0.0/8", want, ""},
		"alone":   {vicinityDocument, "", want, ""},
		"empty":   {kubeProxyDocument + "---\n" + vicinityHeader, "10.0.0.0/8", map[string]string{}, ""},
		"missing": {kubeProxyDocument, "10.0.0.0/8", nil, ""},
		"twice":   {vicinityDocument + "---\n" + vicinityDocument, "", nil, "lines 2 and 7: the file has two documents of kind " + VicinityKind},
		"two of kube-proxy": {kubeProxyDocument + "---\n" + kubeProxyDocument + "---\n" + vicinityDocument, "", nil,
			"lines 2 and 6: the file has two documents of kind " + kind},
		"an unknown field":   {vicinityHeader + "dnsTtl: 5s\n", "", nil, VicinityKind + ": dnsTtl: unknown field; did you mean dnsTTL?"},
		"kube-proxy's field": {vicinityHeader + "clusterCIDR: x\n", "", nil, "it belongs in the document of kind KubeProxyConfiguration"},
		"a value":            {vicinityHeader + "dnsTTL: never\n", "", nil, "dnsTTL never: no time"},
		"mistakes in both": {
			header + "mdoe: ipvs\n---\n" + vicinityHeader + "x: y\n", "", nil, "did you mean mode?\ndocument of kind " + VicinityKind +
				": x: unknown",
		},
		"our field in kube-proxy's": {header + "dnsTTL: 5s\n", "", nil, "dnsTTL: unknown field; it belongs in the document of kind " +
			VicinityKind},
	} {
		file := File{vicinityConfig: vicinity}
		err := file.parse([]byte(test.text))
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: got %v, want %s", title, err, test.err)
			}
			continue
		}
		if err != nil || file.Configuration.ClusterCIDR != test.cidr {
			t.Errorf("%s: %v, clusterCIDR %q", title, err, file.Configuration.ClusterCIDR)
		}
		if diff := cmp.Diff(test.own, file.VicinityFields); diff != "" {
			t.Errorf("%s (-want +got):\n%s", title, diff)
		}
	}
}

// The lines count documents that precede kube-proxy's.
func TestTheLinesOfAComparisonAreThoseOfTheFile(t *testing.T) {
	compared := compare([]byte(vicinityHeader + "dnsTTL: 5s\n---\n" + header + "ipvs:\n  strictARP: true\n"))
	for _, result := range compared.Results {
		if result.Subject == "ipvs.strictARP" && result.Line == 8 {
			return
		}
	}
	t.Errorf("ipvs.strictARP is not in line 8: %+v", compared.Results)
}
