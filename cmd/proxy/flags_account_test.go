package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/accounting"
)

// TestAccountingSettingsAreParsed covers the totals, the number of Services, and the keys.
func TestAccountingSettingsAreParsed(t *testing.T) {
	defaultKeys := []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"}
	for text, want := range map[string]*accounting.Settings{
		"off":                         nil,
		"totals":                      {MaxServices: 500, Keys: defaultKeys},
		"services":                    {PerService: true, MaxServices: 500, Keys: defaultKeys},
		"services=10000":              {PerService: true, MaxServices: 10_000, Keys: defaultKeys},
		"totals,key=example.com/rack": {MaxServices: 500, Keys: []string{"example.com/rack"}},
		"services=7,key=example.com/rack,key=row": {PerService: true, MaxServices: 7, Keys: []string{"example.com/rack", "row"}},
	} {
		flags := accountFlags{text: text}
		if err := flags.Validate(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, flags.settings); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"":               "must be off, totals, services or services=NUMBER",
		"everything":     "must be off, totals, services or services=NUMBER",
		"totals=5":       "must be off, totals, services or services=NUMBER",
		"key=row":        "must be off, totals, services or services=NUMBER",
		"off,key=row":    "off counts nothing, and takes no key",
		"services=":      `the number of Services is "", but must be from 1 to 10000`,
		"services=0":     `the number of Services is "0", but must be from 1 to 10000`,
		"services=10001": `the number of Services is "10001", but must be from 1 to 10000`,
		"services,":      `"" must be key=KEY`,
		"totals,row":     `"row" must be key=KEY`,
		"totals,key=":    `"" is not a label key: `,
		"totals,key=a b": `"a b" is not a label key: `,

		"services,key=row,key=row":             "key row is given twice",
		"totals" + strings.Repeat(",key=", 17): "17 keys are given, but at most 16 are allowed",
	} {
		flags := accountFlags{text: text}
		if err := flags.Validate(); err == nil || !strings.Contains(err.Error(), want) || flags.settings != nil {
			t.Errorf("%s: error %v, want one that contains %q", text, err, want)
		}
	}
}
