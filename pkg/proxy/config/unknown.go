package config

import (
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// If a field is unknown or set twice, kube-proxy only logs that (loadConfig in its options.go). So files in use have
// such fields: metadata.name, for kustomize; masqueradeAll in the section ipvs; strictARP next to it. A replacement for
// kube-proxy must not fail to start because of one. But if a setting that matters is misspelled, a log line is not
// enough. So an unknown field is an error only if the setting that may have been intended has a meaning here.

// unknownSetting is the note about an unknown field that does not resemble a setting with a meaning here.
const unknownSetting = "kube-proxy 1.30 to 1.37 has no such setting; it is not read"

// modeSections are the sections for modes: only the section of the mode has an effect. Users who change the mode copy
// settings from one to another.
var modeSections = []string{"iptables", "ipvs", "nftables", "winkernel"}

// unusedValue returns why a faulty field does not matter here; empty if it may matter.
func unusedValue(fault manifest.ParseError) string {
	path := fault.Field
	switch {
	case removedFields[path] != "":
		return removedFields[path]
	case fault.Reason == manifest.DuplicateField && !hasMeaning(path):
		return "it is set twice, and has no meaning here"
	case fault.Reason != manifest.UnknownField:
		return ""
	case path == "metadata":
		return "kube-proxy's configuration has none; it is not read"
	}
	if other := sectionOf(path); other != "" {
		return "kube-proxy has no such setting in this section, and does not read it; there is " + other
	}
	switch suggested := suggestField(path); {
	case suggested == "":
		return unknownSetting
	case !hasMeaning(suggested):
		return unknownSetting + ", nor is " + suggested
	}
	return ""
}

// suggestion returns the field that was probably intended, if the fault is an unknown field; empty if none is similar.
func suggestion(fault manifest.ParseError) string {
	if fault.Reason != manifest.UnknownField {
		return ""
	}
	return suggestField(fault.Field)
}

// sectionOf returns another mode's section that has a field of exactly the same name.
func sectionOf(path string) string {
	section, name, _ := strings.Cut(path, ".")
	if !slices.Contains(modeSections, section) {
		return ""
	}
	for _, other := range modeSections {
		if slices.Contains(fieldPaths(false), other+"."+name) {
			return other + "." + name
		}
	}
	return ""
}

// hasMeaning reports whether a setting, or one of those in a section, has a meaning here, in a file of any mode.
func hasMeaning(path string) bool {
	return slices.ContainsFunc(fieldPaths(false), func(field string) bool {
		isInside := field == path || strings.HasPrefix(field, path+".")
		return isInside && (field == "mode" || appliesInSomeMode(field) || !isIgnored(field))
	})
}

func isIgnored(field string) bool {
	return slices.ContainsFunc(ignoredSettings, func(setting IgnoredSetting) bool { return setting.Field == field })
}

// suggestField returns the field that was probably intended instead of an unknown one: the same name in another
// section, or one that differs by a typo. Fields that have a meaning here come first. It returns "" if none is similar.
func suggestField(path string) string {
	for _, isSimilar := range []func(string) bool{
		func(other string) bool { return strings.EqualFold(path, other) },
		func(other string) bool { return policy.IsTypo(path, other) },
		func(other string) bool { return lastOf(path) == lastOf(other) },
		func(other string) bool { return policy.IsTypo(lastOf(path), lastOf(other)) },
	} {
		var best string
		for _, other := range fieldPaths(true) {
			if isSimilar(other) && (best == "" || !hasMeaning(best) && hasMeaning(other)) {
				best = other
			}
		}
		if best != "" {
			return best
		}
	}
	return ""
}

func lastOf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
