//go:build linux

package nft

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// describe returns what an operation does, for an error: "add map ip vicinity services".
func describe(op ruleset.Op) string {
	verb := map[ruleset.Verb]string{ruleset.Add: "add", ruleset.Delete: "delete", ruleset.Flush: "flush"}[op.Verb]
	table := ruleset.Keyword(op.Family) + " " + cmp.Or(op.Table, ruleset.TableName)
	switch object := op.Object.(type) {
	case ruleset.TableObject:
		return fmt.Sprintf("%s table %s", verb, table)
	case ruleset.CounterObject:
		return fmt.Sprintf("%s counter %s %s", verb, table, object.Name)
	case ruleset.SetObject:
		return fmt.Sprintf("%s %s", verb, setText(table, object.Set))
	case ruleset.ChainObject:
		return fmt.Sprintf("%s chain %s %s", verb, table, object.Chain.Name)
	case ruleset.RulesObject:
		return fmt.Sprintf("%s rules of chain %s %s", verb, table, object.Chain.Name)
	case ruleset.ElementsObject:
		return fmt.Sprintf("%s elements of %s", verb, setText(table, object.Set))
	}
	return fmt.Sprintf("%s %T in table %s", verb, op.Object, table)
}

// describeMessage returns what one message of an operation does: to which rule or, if known, to which element.
func describeMessage(op ruleset.Op, position int, element *ruleset.Element) string {
	text := describe(op)
	switch object := op.Object.(type) {
	case ruleset.RulesObject:
		return strings.Replace(text, "rules", fmt.Sprintf("rule %d", position+1), 1)
	case ruleset.ElementsObject:
		if element != nil {
			return strings.Replace(text, "elements", "element "+element.Key.Text(object.Set.Key), 1)
		}
	}
	return text
}

func setText(table string, set ruleset.Set) string {
	if set.IsMap() {
		return fmt.Sprintf("map %s %s", table, set.Name)
	}
	return fmt.Sprintf("set %s %s", table, set.Name)
}
