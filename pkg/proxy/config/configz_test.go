package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The page of a newer proxy can be read, too, if the unknown settings are off.
func TestConfigzIsReadAsItWasWritten(t *testing.T) {
	vicinity := VicinityConfig{Fields: map[string]bool{"dnsTTL": false, "podNames": true}}
	c := Default()
	c.ClusterCIDR, c.NodePortAddresses, c.FeatureGates = "10.0.0.0/8", []string{"primary"}, map[string]bool{"AllowServiceExternalIPs": false}
	values := map[string]string{"dnsTTL": "7s", "podNames": "true"}
	encoded, err := json.Marshal(Configz(c, vicinity, values))
	if err != nil {
		t.Fatal(err)
	}
	page := string(encoded)
	vicinityKey := "\"" + vicinityConfigzKey + "\":{"
	for title, test := range map[string]struct{ page, err string }{
		"as written":                {page, ""},
		"a new setting that is off": {strings.Replace(page, vicinityKey, vicinityKey+`"brandNew":false,"other":"",`, 1), ""},
		"a new setting that is on":  {strings.Replace(page, vicinityKey, vicinityKey+`"brandNew":true,`, 1), "brandNew: unknown field"},
		"a new field of kube-proxy": {strings.Replace(page, `"clusterCIDR"`, `"brandNew":{},"clusterCIDR"`, 1), ""},
		"kube-proxy's page":         {`{"kubeproxy.config.k8s.io":{}}`, "the settings of Vicinity are missing"},
		"a page of another program": {"ok", "read configuration /configz: "},
		"an invalid configuration":  {strings.Replace(page, "10.0.0.0/8", "10.0.0.0/99", 1), "clusterCIDR"},
	} {
		file, err := ReadConfigz("/configz", []byte(test.page), vicinity)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: got %v, want %s", title, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		if diff := cmp.Diff(c, file.Configuration) + cmp.Diff(values, file.VicinityFields); diff != "" {
			t.Errorf("%s (-written +read):\n%s", title, diff)
		}
	}
}
