#!/bin/sh
# Makes what an installation on one machine needs before its first start. What is there is kept, so it can be run again.
# It prints no secret.
#
#   setup.sh systemd API_HOST APP_HOST   As root, for PostgreSQL and Redis of this machine: /etc/almoner with settings
#                                        and secrets, the database and its roles, the Redis users, and
#                                        /var/backups/almoner. OPERATOR=name owns the files of the runbooks; otherwise
#                                        root, or the owner of an earlier run
#   setup.sh compose [DIRECTORY]         The secrets of compose.yaml, in deploy/secrets or another directory. Only the
#                                        owner can enter it. The files are readable by all, because the containers run as
#                                        other users; each container gets the files it needs
set -eu
here=$(cd "$(dirname "$0")" && pwd)

fail() { echo "setup.sh: $*" >&2; exit 1; }
create_missing() { # create_missing NAME MODE writes standard input to the file NAME, unless it exists
	if [ -e "$1" ]; then cat >/dev/null; else
		(umask 077; cat >"$1.new")
		[ -s "$1.new" ] || { rm -f "$1.new"; fail "$1 would be empty"; }
		chmod "$2" "$1.new"
		mv "$1.new" "$1"
	fi
}
random() { head -c 32 /dev/urandom | basenc --base64url | tr -d '=\n'; }

# secrets DIRECTORY MODE SEPARATOR POSTGRES REDIS makes the files that both kinds of installation need, with a separator
# between the words of their names, for the addresses of PostgreSQL and Redis, and stays in the directory.
secrets() {
	mode=$2 sep=$3
	[ "$(random | wc -c)" -eq 43 ] || fail "basenc is missing: install GNU coreutils"
	mkdir -p "$1"
	chmod 700 "$1"
	cd "$1"
	for name in postgres owner authserver resourceapi redis; do random | create_missing "$name${sep}password" "$mode"; done
	for role in owner authserver resourceapi; do
		login=$role
		[ "$role" != owner ] || login=almoner_owner
		printf 'postgres://%s:%s@%s/almoner?sslmode=disable' "$login" "$(cat "$role${sep}password")" "$4" |
			create_missing "$role${sep}database${sep}url" "$mode"
	done
	# Each service has a Redis user with its own keys and commands. The user default, with redis_password, is the operator's.
	printf 'redis://authserver:%s@%s/0' "$(random)" "$5" | create_missing "redis${sep}url" "$mode"
	printf 'redis://resourceapi:%s@%s/0' "$(random)" "$5" | create_missing "resourceapi${sep}redis${sep}url" "$mode"
	for service in authserver resourceapi; do random | create_missing "$service${sep}keys" "$mode"; done
}

# redis_user NAME FILE prints the line of the Redis user whose password is in the URL in FILE.
redis_user() {
	rules=$(cat "$here/compose/redis-$1.acl") || exit
	printf 'user %s on >%s %s\n' "$1" "$(sed 's|^redis://[^:]*:||; s|@.*||' "$2")" "$rules"
}

compose() {
	dir=${1:-"$here/secrets"}
	if [ -e "$dir/redis_url" ] && [ "$(cat "$dir/redis_url")" = "redis://:$(cat "$dir/redis_password")@redis:6379/0" ]; then
		# An earlier release gave authserver the operator's password.
		rm -f "$dir/redis_users.conf" "$dir/redis_url"
		echo "authserver gets its own Redis user: run docker compose up --detach --force-recreate redis authserver-1 authserver-2" >&2
	fi
	secrets "$dir" 444 _ postgres:5432 redis:6379
	printf 'requirepass %s\n' "$(cat redis_password)" | create_missing redis.conf 444
	{ redis_user authserver redis_url && redis_user resourceapi resourceapi_redis_url; } | create_missing redis_users.conf 444
	echo "the secrets are in $dir: keep a copy elsewhere" >&2
}

query() { runuser -u postgres -- psql -qAtd postgres -c "$1"; }

# needs fails unless the machine is one that systemd() can set up, and changes nothing.
needs() {
	[ "$(id -u)" = 0 ] || fail "run it as root"
	for name in runuser psql redis-server redis-cli; do
		command -v $name >/dev/null || fail "$name is missing: apt-get install postgresql redis-server"
	done
	for name in postgres redis; do
		id $name >/dev/null 2>&1 || fail "there is no user $name: apt-get install postgresql redis-server"
	done
	query 'select 1' >/dev/null || fail "PostgreSQL does not respond: systemctl start postgresql"
	if [ ! -e $etc/secrets/owner-password ]; then
		[ ! -e $etc/secrets/owner-database-url ] || fail "$etc/secrets was not made by setup.sh: see runbooks/README.md"
		[ -z "$(query "select 1 from pg_roles where rolname in ('almoner_owner', 'almoner_admin')")" ] ||
			fail "PostgreSQL has the roles already: put the copy of $etc/secrets back"
	fi
	# With appendonly, Redis would start without the data that it has, which may be another program's.
	[ -e $etc/redis.conf ] || [ "$(redis-cli info keyspace | tr -d '\r\n')" = '# Keyspace' ] ||
		fail "Redis does not respond, or has data or a password: Almoner needs a Redis of its own"
	# The owner of the directories could have put links there.
	[ ! -L $backups/wal ] || fail "$backups/wal is a link"
	if [ -d $etc/secrets ]; then
		chown -hR root $etc/secrets
		[ -z "$(find $etc/secrets -mindepth 1 ! -type f)" ] || fail "$etc/secrets has something that is not a file"
	fi
}

# database makes the database, its roles, and almoner_admin, a superuser for the runbooks.
database() {
	[ -n "$(query "select 1 from pg_database where datname = 'almoner'")" ] || runuser -u postgres -- createdb almoner
	if [ -z "$(query "select 1 from pg_roles where rolname = 'almoner_owner'")" ]; then
		passwords=
		trap 'rm -rf "$passwords"' EXIT
		trap 'exit 1' INT TERM HUP
		passwords=$(mktemp -d)
		for name in owner authserver resourceapi; do cp $name-password "$passwords/${name}_password"; done
		cp "$here/compose/roles.sql" "$passwords/"
		chown -R postgres "$passwords"
		runuser -u postgres -- psql -qd almoner -v secrets="$passwords" -f "$passwords/roles.sql" --single-transaction
	fi
	if [ -z "$(query "select 1 from pg_roles where rolname = 'almoner_admin'")" ]; then
		runuser -u postgres -- psql -qd postgres --set=ON_ERROR_STOP=1 --single-transaction >/dev/null <<-SQL
			set local log_statement = 'none';
			set local log_min_error_statement = 'panic';
			set local log_min_duration_statement = -1;
			create role almoner_admin superuser login password '$(cat postgres-password)';
		SQL
	fi
}

# redis makes the users and a log of changes. The users are in an ACL file, because Redis does not start if a user is in
# two files, and CONFIG REWRITE writes those of other files into redis.conf. The user redis can write to /etc/redis, so
# only this user writes there.
redis() {
	printf 'aclfile /etc/redis/almoner.acl\nappendonly yes\nappendfsync everysec\nmaxmemory-policy noeviction\n' |
		create_missing $etc/redis.conf 644
	{
		printf 'user default on >%s ~* &* +@all\n' "$(cat redis-password)"
		redis_user authserver redis-url && redis_user resourceapi resourceapi-redis-url
	} | runuser -u redis -- sh -c 'umask 077; cd /etc/redis
		[ -e almoner.acl ] && cat >/dev/null || { cat >almoner.acl.new && mv almoner.acl.new almoner.acl; }'
	runuser -u redis -- sh -c 'cd /etc/redis && ! grep -q "^user " redis.conf || exit 1
		grep -qx "include /etc/almoner/redis.conf" redis.conf || echo "include /etc/almoner/redis.conf" >>redis.conf' ||
		fail "/etc/redis/redis.conf has users: move them to /etc/redis/almoner.acl"
}

# operators_files makes the files of runbooks/README.md.
operators_files() {
	for service in almoner:almoner:almoner_owner almoner_admin:postgres:almoner_admin; do
		echo "$service" | sed 's/\(.*\):\(.*\):\(.*\)/[\1]\nhost=127.0.0.1\nport=5432\ndbname=\2\nuser=\3/'
	done | create_missing $etc/pg_service.conf 644
	for name in pgpass pgpass-postgres; do
		printf '127.0.0.1:5432:*:%s:%s\n' almoner_owner "$(cat owner-password)" almoner_admin "$(cat postgres-password)" |
			create_missing $etc/$name 600
	done
	chown postgres $etc/pgpass-postgres
	chown "$operator" $etc/pgpass
	chown -R "$operator" $etc/secrets
	# With the sticky bit: no user removes or replaces files of another.
	install -d -m 1770 -o "$operator" -g postgres $backups
	install -d -m 700 -o postgres $backups/wal
}

systemd() {
	[ $# = 2 ] || fail "usage: setup.sh systemd API_HOST APP_HOST"
	etc=/etc/almoner backups=/var/backups/almoner
	operator=${OPERATOR:-$(stat -c %U $backups 2>/dev/null || echo root)}
	cd /
	needs
	install -d -m 755 $etc
	sed "s|^ALMONER_BASE_URL=.*|ALMONER_BASE_URL=https://$1|; s|^ALMONER_APP_URL=.*|ALMONER_APP_URL=https://$2|" \
		"$here/systemd/almoner.env.example" | create_missing $etc/almoner.env 644
	secrets $etc/secrets 600 - 127.0.0.1:5432 127.0.0.1:6379
	database
	redis
	operators_files
	echo "$etc is complete. Keep a copy of $etc/secrets elsewhere." >&2
}

case ${1:-} in
systemd | compose) "$@" ;;
*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
