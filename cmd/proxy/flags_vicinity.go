package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// stepFlags are the flags of the daemon that select a single step, or name the file. They cannot be set in a file.
var stepFlags = []string{"config", "check", "init-only", "write-config-to"}

// overriddenBy maps a setting of ours to the flags with the same effect: if one is on the command line, the file's
// value of the setting is ignored.
var overriddenBy = map[string][]string{
	"log-level": {"v"},
	"manifests": {"manifests", "master", "kubeconfig", "context"},
	"master":    {"manifests", "master", "kubeconfig", "context"},
}

// vicinityFlags returns the daemon's flags for which kube-proxy's file has no field, by their fields in the
// VicinityProxyConfiguration document. So every setting can be in a file. To add one, add a flag of run and a value in
// flags_vicinity_test.go, then run `go test ./cmd/proxy -update`.
func vicinityFlags() map[string]*pflag.Flag {
	var flags runFlags
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.register(set)
	byField := map[string]*pflag.Flag{}
	set.VisitAll(func(flag *pflag.Flag) {
		isKubeProxyFlag := slices.ContainsFunc(daemonSettings(), func(s settingFlag) bool { return s.name == flag.Name })
		if !flag.Hidden && !isKubeProxyFlag && !slices.Contains(stepFlags, flag.Name) {
			byField[config.VicinityField(flag.Name)] = flag
		}
	})
	return byField
}

// vicinitySettings returns the fields that our own document may have.
func vicinitySettings() config.VicinityConfig {
	vicinity := config.VicinityConfig{Fields: map[string]bool{}, Check: checkVicinityFields}
	for field, flag := range vicinityFlags() {
		vicinity.Fields[field] = flag.Value.Type() == "bool"
	}
	return vicinity
}

// checkVicinityFields validates values as their flags do; an error names the field.
func checkVicinityFields(values map[string]string) error {
	var flags runFlags
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.register(set)
	var errs []error
	names := []string{}
	for field, flag := range vicinityFlags() {
		names = append(names, "--"+flag.Name, field)
		if text, has := values[field]; has {
			if err := set.Lookup(flag.Name).Value.Set(text); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", field, err))
			}
		}
	}
	if len(errs) == 0 {
		errs = append(errs, flags.validateStateless(), flags.parseLevel())
		flags.settings = config.Settings{} // the addresses of other servers are unknown here
		errs = append(errs, flags.validateVicinity())
	}
	if err := errors.Join(errs...); err != nil {
		return errors.New(strings.NewReplacer(byLengthDesc(names)...).Replace(err.Error()))
	}
	return nil
}

// byLengthDesc sorts pairs of texts by length, so that no text is replaced inside a longer one that begins with it.
func byLengthDesc(pairs []string) []string {
	chunks := slices.SortedFunc(slices.Chunk(pairs, 2), func(a, b []string) int { return cmp.Compare(len(b[0]), len(a[0])) })
	return slices.Concat(chunks...)
}

// applyVicinityFields sets the flags to the values in our own document, except for those on the command line.
func (f *settingFlags) applyVicinityFields() error {
	byField := vicinityFlags()
	for _, field := range slices.Sorted(maps.Keys(f.file.VicinityFields)) {
		flag := f.flagSet.Lookup(byField[field].Name)
		if flag == nil || flag.Changed || slices.ContainsFunc(overriddenBy[flag.Name], f.flagSet.Changed) {
			continue
		}
		if err := flag.Value.Set(f.file.VicinityFields[field]); err != nil {
			return fmt.Errorf("%s: %s: %w", f.file.Path, field, err)
		}
	}
	return nil
}

// vicinityValues returns the active values of our own settings; with onlyChanged, only those that differ from the
// default.
func (f *settingFlags) vicinityValues(onlyChanged bool) map[string]string {
	values := map[string]string{}
	for field, vicinityFlag := range vicinityFlags() {
		if flag := f.flagSet.Lookup(vicinityFlag.Name); flag != nil && (!onlyChanged || flag.Value.String() != flag.DefValue) {
			values[field] = flag.Value.String()
		}
	}
	return values
}
