package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

func TestEveryFormatOfTheRulesHasEveryRule(t *testing.T) {
	var list []map[string]any
	if err := json.Unmarshal([]byte(webhookCommand(t, "", "rules", "-o", "json").stdout), &list); err != nil {
		t.Fatal(err)
	}
	text := strings.Split(strings.TrimSpace(webhookCommand(t, "", "rules").stdout), "\n")
	rules := rules.Rules()
	if len(list) != len(rules) || len(text) != len(rules)+1 {
		t.Fatalf("%d rules: %d in JSON, %d lines of text", len(rules), len(list), len(text))
	}
	for i, rule := range rules {
		strict := string(rule.Default)
		if rule.Strict {
			strict = "deny"
		}
		want := map[string]any{
			"id": string(rule.ID), "kind": rule.Kind, "default": string(rule.Default), "strict": strict, "summary": rule.Summary,
		}
		if diff := cmp.Diff(want, list[i]); diff != "" {
			t.Errorf("JSON (-want +got):\n%s", diff)
		}
		if want := []string{string(rule.ID), rule.Kind, string(rule.Default), strict}; !cmp.Equal(want, strings.Fields(text[i+1])[:4]) {
			t.Errorf("line %q, want %q", text[i+1], want)
		}
	}
}

func TestRulesRejectUnknownFormats(t *testing.T) {
	if got := webhookCommand(t, "", "rules", "-o", "yaml"); got.status != 2 || !strings.Contains(got.stderr, "text, json") {
		t.Errorf("%+v; want status 2 and the formats", got)
	}
}
