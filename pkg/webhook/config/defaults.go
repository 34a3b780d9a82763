package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The fields that choose a default. There is one default at most.
const (
	topologyMode        = "topologyMode"
	trafficDistribution = "trafficDistribution"
	topologyKeys        = "topologyKeys"
)

// chosen is a default and where it is written.
type chosen struct {
	field string
	line  int
}

// defaults reads the default for Services without a topology setting, and when it applies.
func (r *reader) defaults(at *field.Path, value *yaml.Node, settings *rules.Settings) {
	var before *chosen
	choose := func(setting rules.Setting) func(at *field.Path, value *yaml.Node) {
		return func(at *field.Path, value *yaml.Node) {
			if before != nil {
				r.refuse(value, field.Forbidden(at, fmt.Sprintf("there can be one default, and line %d sets %s", before.line, before.field)))
				return
			}
			before = &chosen{field: at.String(), line: value.Line}
			settings.Default = r.defaultOf(at, value, setting)
		}
	}
	r.fields(value, at, []member{
		{name: topologyMode, read: choose(rules.TopologyMode)},
		{name: trafficDistribution, read: choose(rules.TrafficDistribution)},
		{name: topologyKeys, read: choose(rules.TopologyKeys)},
		{name: "onUpdate", read: r.boolInto(&settings.DefaultOnUpdate)},
		{name: "withSessionAffinity", read: r.boolInto(&settings.DefaultWithAffinity)},
	})
}

// defaultOf reads one default.
func (r *reader) defaultOf(at *field.Path, value *yaml.Node, setting rules.Setting) *rules.Default {
	if !r.isText(at, value) {
		return nil
	}
	found := &rules.Default{Setting: setting, Value: value.Value}
	err := found.Check()
	if err == nil {
		return found
	}
	if words := setting.Values(); words != nil {
		r.refuse(value, unsupported(at, value.Value, "must be one of: "+strings.Join(words, ", ")+suggestion(value.Value, words)))
	} else {
		r.refuse(value, field.Invalid(at, short(value.Value), err.Error()))
	}
	return nil
}
