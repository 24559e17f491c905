package fuzzkit

import (
	"slices"
	"strings"
)

// Placeholders create the values of the words in an input, such as <pat>. A value is created when an input contains its
// word, so that each input has its own values.
type Placeholders struct {
	Public map[string]func() string // identifiers, allowed anywhere
	Secret map[string]func() string // credentials, which no response or log may contain
}

// Values holds the values of one input. Each occurrence of a word has the same value.
type Values struct {
	stock   Placeholders
	made    map[string]string
	secrets []string
}

// NewValues returns empty Values for the next input.
func (s Placeholders) NewValues() *Values { return &Values{stock: s, made: map[string]string{}} }

// Fill replaces the words in text with their values.
func (o *Values) Fill(text string) string {
	for word, make := range o.stock.Secret {
		if strings.Contains(text, "<"+word+">") && o.made[word] == "" {
			o.secrets = append(o.secrets, o.make(word, make))
		}
	}
	return o.replace(o.FillPublic(text))
}

// FillPublic is Fill without secrets, for text that is logged, such as addresses.
func (o *Values) FillPublic(text string) string {
	for word, make := range o.stock.Public {
		if strings.Contains(text, "<"+word+">") && o.made[word] == "" {
			o.make(word, make)
		}
		text = strings.ReplaceAll(text, "<"+word+">", o.made[word])
	}
	return text
}

func (o *Values) make(word string, make func() string) string {
	o.made[word] = make()
	return o.made[word]
}

func (o *Values) replace(text string) string {
	for word := range o.stock.Secret {
		text = strings.ReplaceAll(text, "<"+word+">", o.made[word])
	}
	return text
}

// Secrets returns the secrets that were used so far.
func (o *Values) Secrets() []string { return slices.Clone(o.secrets) }

// Repeats reports whether a text contains one of the secrets.
func Repeats(text string, secrets []string) bool {
	return slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(text, secret) })
}
