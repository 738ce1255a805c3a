module github.com/luatx/luatx/contrib/pgx

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/luatx/luatx v0.0.0
	github.com/luatx/luatx/sqltx/sqltest v0.0.0
	go.uber.org/goleak v1.3.0
)

replace (
	github.com/luatx/luatx => ../..
	github.com/luatx/luatx/sqltx/sqltest => ../../sqltx/sqltest
)
