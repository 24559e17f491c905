package ui

import (
	"html/template"
	"math"
	"strconv"
	"time"
)

// The script times.js writes times in the reader's time zone, and the time in UTC as their title. Without it, they are
// in UTC.
//
// The attribute data-local says how: "ago" is relative, like "2 minutes ago", for a time of the last or next week.

// momentText returns a moment in UTC, to the minute.
func momentText(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

// exactText returns a moment in UTC, to the second.
func exactText(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05 UTC") }

func dayText(t time.Time) string { return t.UTC().Format("2 January 2006") }

// agoElement returns a time that the script makes relative.
func agoElement(t time.Time) template.HTML { return timeElement("ago", momentText(t), t) }

// agoExact returns a time that the script makes relative. Its title includes the seconds.
func agoExact(t time.Time) template.HTML { return timeElement("ago", exactText(t), t) }

// localMoment returns a time that the script writes in the reader's time zone.
func localMoment(t time.Time) template.HTML { return timeElement("moment", momentText(t), t) }

// localDay returns a day that the script writes as it is in the reader's time zone.
func localDay(t time.Time) template.HTML { return timeElement("day", dayText(t), t) }

// timeElement returns a time element. Its parts come from formatted times alone and need no escaping.
func timeElement(kind, text string, t time.Time) template.HTML {
	return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339) + `" data-local="` + kind + `">` + text +
		`</time>`)
}

// Wait returns a wait in words, rounded up.
func Wait(wait time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		most int
		name string
	}{{time.Minute, 90, "minute"}, {time.Hour, 47, "hour"}, {24 * time.Hour, math.MaxInt, "day"}} {
		switch n := int((wait + unit.of - 1) / unit.of); {
		case n <= 1 && unit.name == "minute":
			return "a minute"
		case n <= unit.most:
			return strconv.Itoa(n) + " " + unit.name + "s"
		}
	}
	return ""
}
