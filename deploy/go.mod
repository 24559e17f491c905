module github.com/almonerhq/almoner/deploy

go 1.26

require github.com/almonerhq/almoner/shared v0.0.0

replace github.com/almonerhq/almoner/shared => ../shared
