package fuzzkit

import (
	"slices"
	"strings"
)

// A Stock is what words stand for. Each is made when an input names it, so that whatever an input uses up, or spoils,
// is there again for the next.
type Stock struct {
	Public map[string]func() string // identifiers: they may stand anywhere
	Secret map[string]func() string // credentials: neither an answer nor a log repeats them
}

// An Order is what one input named. The same word stands for the same thing all over it.
type Order struct {
	stock   Stock
	made    map[string]string
	secrets []string
}

// Order begins an input.
func (s Stock) Order() *Order { return &Order{stock: s, made: map[string]string{}} }

// Fill puts what they stand for in the place of words.
func (o *Order) Fill(text string) string {
	for word, make := range o.stock.Secret {
		if strings.Contains(text, "<"+word+">") && o.made[word] == "" {
			o.secrets = append(o.secrets, o.make(word, make))
		}
	}
	return o.replace(o.FillPublic(text))
}

// FillPublic is Fill where no secret may stand: addresses are logged.
func (o *Order) FillPublic(text string) string {
	for word, make := range o.stock.Public {
		if strings.Contains(text, "<"+word+">") && o.made[word] == "" {
			o.make(word, make)
		}
		text = strings.ReplaceAll(text, "<"+word+">", o.made[word])
	}
	return text
}

func (o *Order) make(word string, make func() string) string {
	o.made[word] = make()
	return o.made[word]
}

func (o *Order) replace(text string) string {
	for word := range o.stock.Secret {
		text = strings.ReplaceAll(text, "<"+word+">", o.made[word])
	}
	return text
}

// Secrets are those that were named so far.
func (o *Order) Secrets() []string { return slices.Clone(o.secrets) }

// Repeats says whether a text has a secret in it.
func Repeats(text string, secrets []string) bool {
	return slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(text, secret) })
}
